"""Handwritten digits of six domains: MNIST as it is, rotated, inverted, blurred, on texture; and scikit-learn's.

Image i of MNIST is in domain i mod 5 only, so no image is in two domains. All arithmetic is on whole numbers: the
result is the same on every machine.
"""

import numpy as np
from numpy.typing import NDArray

from fedfdp.data.named.entry import Card, Images, Made
from fedfdp.data.named.layout import Bytes, Records

SIDE = 28
FROM_MNIST = ("mnist", "rotated", "inverted", "blurred", "texture")
SITES = 5  # of each domain that is made from MNIST
_EACH = 70_000 // len(FROM_MNIST)
_SKLEARN = 1_797
_UNIT = 256  # places between two pixels, for interpolation
_COS_45 = 181  # cos 45° = sin 45° in units of 1/256


def resampled(images: Bytes, rows: NDArray[np.int64], columns: NDArray[np.int64]) -> Bytes:
    """Images (N, H, W) at these places in 1/256 of a pixel, by bilinear interpolation; 0 outside."""
    height, width = images.shape[1:]
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1))).astype(np.int32)
    rows = np.clip(rows + _UNIT, 0, (height + 1) * _UNIT - 1).astype(np.int32)
    columns = np.clip(columns + _UNIT, 0, (width + 1) * _UNIT - 1).astype(np.int32)
    top, left, down, right = rows // _UNIT, columns // _UNIT, rows % _UNIT, columns % _UNIT
    upper = padded[:, top, left] * (_UNIT - right) + padded[:, top, left + 1] * right
    lower = padded[:, top + 1, left] * (_UNIT - right) + padded[:, top + 1, left + 1] * right
    return ((upper * (_UNIT - down) + lower * down + _UNIT * _UNIT // 2) // (_UNIT * _UNIT)).astype(np.uint8)


def rotated(images: Bytes) -> Bytes:
    """Turned by 45° to the left around the middle."""
    row, column = np.meshgrid(np.arange(SIDE), np.arange(SIDE), indexing="ij")
    # Twice the distance from the middle, which lies between two pixels.
    down, right = 2 * row - (SIDE - 1), 2 * column - (SIDE - 1)
    middle = (SIDE - 1) * _UNIT // 2
    turned_down, turned_right = _COS_45 * (down + right) // 2, _COS_45 * (right - down) // 2
    return resampled(images, middle + turned_down, middle + turned_right)


def inverted(images: Bytes) -> Bytes:
    """Black on white."""
    return 255 - images


def blurred(images: Bytes) -> Bytes:
    """Smeared by binomial weights 1 4 6 4 1, twice in each direction."""
    x = np.pad(images, ((0, 0), (4, 4), (4, 4))).astype(np.int32)
    for _ in range(2):
        x = 6 * x[:, 2:-2] + 4 * (x[:, 1:-3] + x[:, 3:-1]) + x[:, :-4] + x[:, 4:]
        x = 6 * x[:, :, 2:-2] + 4 * (x[:, :, 1:-3] + x[:, :, 3:-1]) + x[:, :, :-4] + x[:, :, 4:]
    return ((x + 2**15) // 2**16).astype(np.uint8)


def on_texture(images: Bytes) -> Bytes:
    """On a chequered ground of 4 × 4 fields, shifted and shaded differently from image to image: |ground − digit|."""
    number = np.arange(len(images), dtype=np.uint32)[:, None, None]
    row, column = np.arange(SIDE, dtype=np.uint32)[None, :, None], np.arange(SIDE, dtype=np.uint32)[None, None, :]
    field = (row + number * 5 % 8) // 4 * 7 + (column + number * 3 % 8) // 4 * 13 + number * 31
    shade = (field * np.uint32(2_654_435_761) >> 16) % 160  # a hash of the field's number, modulo 2³²
    distance: NDArray[np.int16] = np.abs(shade.astype(np.int16) - images)
    return distance.astype(np.uint8)


def enlarged(images: Bytes) -> Bytes:
    """scikit-learn's digits, 8 × 8 of 0 to 16, as 28 × 28 of 0 to 255: 20 × 20 in the middle, as MNIST's are."""
    bright = (images.astype(np.int64) * 255 // 16).astype(np.uint8)
    # The middle of pixel i of 20 lies at (i + ½) · 8 / 20 − ½ of the small image.
    places = (2 * np.arange(20) + 1) * 8 * _UNIT // 40 - _UNIT // 2
    rows, columns = np.meshgrid(places, places, indexing="ij")
    return np.pad(resampled(bright, rows, columns), ((0, 0), (4, 4), (4, 4)))


def made(mnist: Records, digits: Records) -> Records:
    """Domain after domain, scikit-learn's digits at the end."""
    change = (lambda x: x, rotated, inverted, blurred, on_texture)
    count = len(FROM_MNIST)
    xs = [change[domain](mnist.x[domain::count, 0]) for domain in range(count)] + [enlarged(digits.x[:, 0])]
    ys = [mnist.y[domain::count] for domain in range(count)] + [digits.y]
    return Records(np.concatenate(xs)[:, None], np.concatenate(ys))


def domains() -> NDArray[np.str_]:
    """The domain of each record: six holders."""
    return np.repeat([*FROM_MNIST, "sklearn"], [_EACH] * len(FROM_MNIST) + [_SKLEARN])


def sites() -> NDArray[np.str_]:
    """Five sites of each domain that is made from MNIST, one of scikit-learn's: 26 holders."""
    site = [f"{domain}-{i % SITES + 1}" for domain in FROM_MNIST for i in range(_EACH)]
    return np.array(site + ["sklearn"] * _SKLEARN)


DOMAIN_DIGITS = Images(
    name="domain-digits",
    records=len(FROM_MNIST) * _EACH + _SKLEARN,
    train=len(FROM_MNIST) * _EACH + _SKLEARN,
    shape=(1, SIDE, SIDE),
    classes=10,
    brightest=255,
    sha256="9405f5e80738c705f995a3fe2dc5d86fb89a3ddf58767737ae024fabb65949d4",
    made=Made(("mnist", "digits"), made),
    columns={"domain": domains, "site": sites},
    card=Card(
        source="MNIST and scikit-learn's digits",
        licence="MNIST: CC BY-SA 3.0; scikit-learn's digits: CC BY 4.0",
        column="domain",
        holders="6 domains; with data.column = 'site' 26 holders: five of each domain made from MNIST",
    ),
)
