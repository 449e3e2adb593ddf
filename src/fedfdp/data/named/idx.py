"""The idx files that MNIST and datasets of its kind come in."""

from collections.abc import Sequence

import numpy as np

from fedfdp.data.named.layout import Bytes, Layout, Records


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
