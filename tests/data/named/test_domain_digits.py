"""Digits of six domains: what each domain does to an image, who holds what; and, marked slow, the real ones."""

import numpy as np
import pytest

from fedfdp.data import Federation, load
from fedfdp.data.named import domain_digits as d
from fedfdp.data.named.layout import Records


def dot(row, column, value=255):
    image = np.zeros((1, 28, 28), np.uint8)
    image[0, row, column] = value
    return image


def test_rotated_by_45_degrees_to_the_left():
    # What was right of the middle is now up right of it, at the same distance: 10 pixels, so 7.07 up and to the right.
    image = np.zeros((1, 28, 28), np.uint8)
    image[0, 13:15, 23:25] = 240  # its middle is at (13.5, 23.5), where (13.5, 13.5) is the image's
    turned = d.rotated(image)[0].astype(float)
    row, column = np.indices((28, 28))
    middle = (row * turned).sum() / turned.sum(), (column * turned).sum() / turned.sum()
    assert middle == pytest.approx((13.5 - 7.07, 13.5 + 7.07), abs=0.1)
    assert (d.rotated(np.full((1, 28, 28), 255, np.uint8))[0, 6:22, 6:22] == 255).all()
    assert not d.rotated(dot(0, 0)).any()  # a corner leaves the picture


def test_inverted():
    assert d.inverted(dot(3, 4))[0, 3, 4] == 0
    assert d.inverted(dot(3, 4)).sum() == 255 * (28 * 28 - 1)


def test_blurred_by_binomial_weights():
    # 1 4 6 4 1 applied twice is the eighth row of Pascal's triangle: 70 of 256 in the middle.
    got = d.blurred(dot(10, 12))[0]
    pascal = np.array([1, 8, 28, 56, 70, 56, 28, 8, 1])
    wanted = np.floor(255 * np.outer(pascal, pascal) / 2**16 + 0.5)
    assert np.array_equal(got[6:15, 8:17], wanted)
    assert got.sum() == wanted.sum()


def test_texture_is_the_same_for_the_same_place_and_differs_between_images():
    ground = d.on_texture(np.zeros((3, 28, 28), np.uint8))
    assert ground.max() < 160
    assert len(np.unique(ground[0])) > 20
    assert not np.array_equal(ground[0], ground[1])
    bright = d.on_texture(np.full((3, 28, 28), 255, np.uint8))
    assert np.array_equal(bright.astype(int), 255 - ground.astype(int))
    # Image 0 is not shifted: its first field is 4 × 4, and field 0 of image 0 has shade 0.
    assert not ground[0, :4, :4].any()


def test_enlarged_fills_the_middle_20_by_20():
    big = d.enlarged(np.full((1, 8, 8), 16, np.uint8))[0]
    assert big.shape == (28, 28)
    assert (big[5:23, 5:23] == 255).all()
    assert not big[:4].any()
    assert not big[:, 24:].any()
    left = np.zeros((1, 8, 8), np.uint8)
    left[0, :, 0] = 16
    assert d.enlarged(left)[0, :, :14].sum() == d.enlarged(left).sum() > 0


def test_no_image_is_in_two_domains():
    mnist = Records(np.zeros((20, 1, 28, 28), np.uint8), np.arange(20, dtype=np.uint8))
    digits = Records(np.zeros((2, 1, 8, 8), np.uint8), np.array([7, 8], np.uint8))
    made = d.made(mnist, digits)
    assert made.x.shape == (22, 1, 28, 28)
    assert made.y.tolist() == [
        *range(0, 20, 5),
        *range(1, 20, 5),
        *range(2, 20, 5),
        *range(3, 20, 5),
        4,
        9,
        14,
        19,
        7,
        8,
    ]
    assert not made.x[:4].any()
    assert (made.x[8:12] == 255).all()


def test_domains_and_sites():
    domains, sites = d.domains(), d.sites()
    assert len(domains) == len(sites) == d.DOMAIN_DIGITS.records == 71_797
    names, counts = np.unique(domains, return_counts=True)
    assert dict(zip(names.tolist(), counts.tolist(), strict=True)) == {
        **dict.fromkeys(d.FROM_MNIST, 14_000),
        "sklearn": 1_797,
    }
    names, counts = np.unique(sites, return_counts=True)
    assert len(names) == 26
    assert set(counts.tolist()) == {2_800, 1_797}
    assert all(site.startswith(domain) for site, domain in zip(sites[::97], domains[::97], strict=True))


@pytest.mark.slow
def test_the_real_ones(tmp_path):
    data = load("domain-digits")
    assert data.x.shape == (71_797, 1, 28, 28)
    held = Federation.partition(data, how="column", column="domain")
    assert held.names == ("blurred", "inverted", "mnist", "rotated", "sklearn", "texture")
    assert held.sizes[4] == 1_347  # three quarters of 1,797
