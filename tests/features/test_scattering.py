"""Scattering beside its definition, written with numpy's FFT: continuous filters, whole convolutions, then sampling."""

import numpy as np
import pytest
import torch

from fedfdp.core.errors import SettingError
from fedfdp.features.scattering import Scattering

L, REACH = 8, 24  # filters are cut off only where nothing is left of them


def gabor(at_y, at_x, j, theta):
    width, xi = 0.8 * 2**j, 3 * np.pi / 4 / 2**j
    turned = np.cos(theta) * at_x + np.sin(theta) * at_y, -np.sin(theta) * at_x + np.cos(theta) * at_y
    envelope = np.exp(-(turned[0] ** 2 + (0.5 * turned[1]) ** 2) / (2 * width**2)) * 0.5 / (2 * np.pi * width**2)
    wave = envelope * np.exp(1j * xi * turned[0])
    return wave - envelope * wave.sum() / envelope.sum()


def low(at_y, at_x, width):
    bell = np.exp(-(at_y**2 + at_x**2) / (2 * width**2))
    return bell / bell.sum()


def filtered(image, kernel, offset):
    """The convolution of an image, mirrored at its border, with kernel(dy, dx), at pixels + offset."""
    side = image.shape[0]
    big = np.pad(image, side - 1, mode="reflect")
    steps = np.arange(-REACH, REACH)
    y, x = np.meshgrid(steps - offset, steps - offset, indexing="ij")  # where a pixel is, seen from the wanted place
    taps = np.zeros(big.shape, complex)
    for (i, j), value in np.ndenumerate(kernel(y, x)):
        taps[steps[i] % len(taps), steps[j] % len(taps)] += value
    # correlation: out[p] = Σ_s big[p + s]·kernel(s − offset)
    out = np.fft.ifft2(np.fft.fft2(big) * np.conj(np.fft.fft2(np.conj(taps))))
    return out[side - 1 : 2 * side - 1, side - 1 : 2 * side - 1]


def scattering(image):
    """(81, side / 4, side / 4) of one image: averages at every place of the finest grid, every fourth kept."""
    angles = [np.pi * k / L for k in range(L)]

    def averaged(u, step, width):  # u is known at every `step`-th pixel; φ there has `width` of its steps
        near = filtered(u, lambda y, x: low(y, x, width), 0.5 if step == 2 else 1.5).real
        return near[:: 4 // step, :: 4 // step]

    fine = [np.abs(filtered(image, lambda y, x, a=a: gabor(y, x, 0, a), 0.0)) for a in angles]

    def coarse(u):
        return [np.abs(filtered(u, lambda y, x, a=a: gabor(y, x, 1, a), 0.5))[::2, ::2] for a in angles]

    rows = [averaged(image, 1, 1.6)] + [averaged(u, 1, 1.6) for u in fine]
    rows += [averaged(u, 2, 0.8) for u in coarse(image)]
    rows += [averaged(u, 2, 0.8) for first in fine for u in coarse(first)]
    return np.stack(rows)


def normalised(rows, groups):
    parts = rows.reshape(groups, -1)
    spread = np.sqrt(parts.var(1, keepdims=True) + 1e-5)
    return ((parts - parts.mean(1, keepdims=True)) / spread).reshape(rows.shape)


@pytest.fixture
def images():
    noise = np.random.default_rng(0).standard_normal((2, 2, 40, 40))
    smooth = np.array([[filtered(c, lambda y, x: low(y, x, 1.0), 0.0).real for c in image] for image in noise])
    return torch.from_numpy(smooth).float()


def test_it_is_what_the_definition_says(images):
    found = Scattering(groups=27)(images)
    assert found.shape == (2, 162, 10, 10)
    for record in range(2):
        rows = np.concatenate([scattering(colour.numpy().astype(float)) for colour in images[record]])
        difference = np.abs(found[record].numpy() - normalised(rows, 27))
        assert difference.max() < 0.02  # filters are cut off at 11 and 20 pixels
        assert difference.mean() < 0.002


@pytest.mark.parametrize(("shape", "features"), [((1, 28, 28), (81, 7, 7)), ((3, 32, 32), (243, 8, 8))])
def test_shapes(shape, features):
    assert Scattering()(torch.zeros(1, *shape)).shape[1:] == features


def test_three_colours_become_brightness_and_two_differences(images):
    red, green, blue = coloured = torch.stack([images[0, 0], images[0, 1], images[1, 0]])
    by_hand = torch.stack([(red + green + blue) / 3**0.5, (red - blue) / 2**0.5, (red - 2 * green + blue) / 6**0.5])
    found, plain = Scattering()(coloured[None]), Scattering(opponent=False)
    assert torch.allclose(found, plain(by_hand[None]), atol=1e-4)
    assert not torch.allclose(found, plain(coloured[None]), atol=0.1)


def test_each_record_by_itself(images):
    net = Scattering()
    both = net(images)
    assert torch.allclose(net(images[:1]), both[:1], atol=1e-5)
    changed = images.clone()
    changed[1] = 7.0
    assert torch.allclose(net(changed)[0], both[0], atol=1e-5)


def test_a_mirror_image_has_the_same_features(images):
    net = Scattering(mirror=True)
    assert torch.allclose(net(images), net(images.flip(-1)), atol=1e-4)
    assert net(images).shape == (2, 162, 10, 5)
    assert not torch.allclose(Scattering()(images), Scattering()(images.flip(-1)), atol=0.1)


def test_a_power_makes_faint_structure_count_more(images):
    """The modulus of the first wavelet, averaged, then its square root: channel 1, in a group by itself."""
    row = scattering(images[0, 0].numpy().astype(float))[1:2]
    found = Scattering(groups=81, power=0.5)(images[:, :1])[0, 1].numpy()
    assert np.abs(found - normalised(np.sqrt(row), 1)[0]).max() < 0.02


@pytest.mark.parametrize("mirror", [False, True])
def test_what_the_angles_have_in_common_counts_less(images, mirror):
    """By hand, channel by channel: x∗φ stays, in the other three kinds the mean shrinks to a quarter."""
    whole, found = (Scattering(common=common, mirror=mirror)(images).double() for common in (1.0, 0.25))
    for colour in (0, 81):
        assert torch.equal(found[:, colour], whole[:, colour])
        for first, last in ((1, 9), (9, 17), (17, 81)):
            kind, before = found[:, colour + first : colour + last], whole[:, colour + first : colour + last]
            mean = sum(before[:, k] for k in range(last - first)) / (last - first)
            for k in range(last - first):
                assert torch.allclose(kind[:, k], before[:, k] - 0.75 * mean, atol=1e-5)


def test_bad_arguments_are_named():
    with pytest.raises(SettingError, match=r"features\.arguments\.common = 1.5: from 0 to 1"):
        Scattering(common=1.5)
    with pytest.raises(SettingError, match=r"features\.arguments\.groups = 28: a divisor of 81"):
        Scattering(groups=28)
    with pytest.raises(SettingError, match=r"features\.arguments\.power = 2"):
        Scattering(power=2.0)
    with pytest.raises(SettingError, match="at least 12×12"):
        Scattering()(torch.zeros(2, 30))
