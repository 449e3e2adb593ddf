"""The files that datasets come in, turned into whole byte arrays: idx, and the three forms of CIFAR-10.

Never scales, shuffles or repairs anything, and never runs what a pickle asks for.
"""

import gzip
import hashlib
import io
import json
import pickle
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

# What damaged files raise while they are read.
DAMAGE = (OSError, ValueError, EOFError, KeyError, TypeError, SyntaxError, zlib.error, pickle.UnpicklingError)

_LARGEST_FILE = 256 * 2**20  # no file of these datasets is larger, so a compressed one cannot blow up memory


@dataclass(frozen=True)
class Records:
    """All records of a dataset, the official training part first: x (N, C, H, W) and y (N,), as stored."""

    x: Bytes
    y: Bytes

    def digest(self) -> str:
        content = hashlib.sha256(np.ascontiguousarray(self.x).data)
        content.update(np.ascontiguousarray(self.y).data)
        return content.hexdigest()


@dataclass(frozen=True)
class Form:
    """One way a dataset is laid out in files: their names in the order `read` takes them."""

    title: str
    files: tuple[str, ...]
    read: Callable[[Sequence[bytes]], Records]

    def locate(self, folder: Path) -> list[Path] | None:
        """The form's files in this very folder, if all are there: plain, gzipped, or with the dot some copies have."""
        found = []
        for name in self.files:
            spellings = [base + end for base in (name, name.replace("-idx", ".idx")) for end in ("", ".gz")]
            path = next((folder / s for s in spellings if (folder / s).is_file()), None)
            if path is None:
                return None
            found.append(path)
        return found

    def load(self, paths: Sequence[Path]) -> Records:
        return self.read([_contents(path) for path in paths])


def _contents(path: Path) -> bytes:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        content = file.read(_LARGEST_FILE + 1)
    if len(content) > _LARGEST_FILE:
        raise ValueError(f"{path.name} holds more than {_LARGEST_FILE // 2**20} MiB")
    return content


def idx(content: bytes) -> Bytes:
    """An idx file of unsigned bytes: two zeros, type 8, the number of dimensions, their sizes, the values."""
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise ValueError("not an idx file of unsigned bytes")
    start = 4 + 4 * content[3]
    shape = np.frombuffer(content[4:start], ">u4").astype(int)
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _idx_set(files: Sequence[bytes]) -> Records:
    train_x, train_y, test_x, test_y = (idx(content) for content in files)
    x, y = np.concatenate([train_x, test_x])[:, None], np.concatenate([train_y, test_y])
    return _paired(x, y)


def _cifar_binary(files: Sequence[bytes]) -> Records:
    # A record is one label byte and 3 × 32 × 32 pixels.
    rows = np.concatenate([np.frombuffer(content, np.uint8).reshape(-1, 3073) for content in files])
    return _paired(rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0])


class _ArraysOnly(pickle.Unpickler):
    """CIFAR's batches are pickles, which may call anything: allow what rebuilds an array, nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in {("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")}:
            from numpy._core import multiarray

            return multiarray._reconstruct
        if (module, name) in {("numpy", "ndarray"), ("numpy", "dtype")}:
            return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):
            return lambda text, encoding: text.encode(encoding)
        raise pickle.UnpicklingError(f"the pickle asks for {module}.{name}, which CIFAR-10 does not need")


def _cifar_python(files: Sequence[bytes]) -> Records:
    batches = [_ArraysOnly(io.BytesIO(content), encoding="bytes").load() for content in files]
    x = np.concatenate([np.asarray(batch[b"data"], np.uint8) for batch in batches]).reshape(-1, 3, 32, 32)
    return _paired(x, np.concatenate([np.asarray(batch[b"labels"]) for batch in batches]).astype(np.uint8))


def _cifar_png(files: Sequence[bytes]) -> Records:
    from PIL import Image

    # Each row of a PNG is one image of 1024 RGB pixels.
    images = [np.asarray(Image.open(io.BytesIO(content)).convert("RGB")) for content in files[:-2]]
    x = np.concatenate(images).reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)
    return _paired(x, np.concatenate([np.asarray(json.loads(content)) for content in files[-2:]]).astype(np.uint8))


def _paired(x: Bytes, y: Bytes) -> Records:
    if len(x) != len(y) or y.ndim != 1:
        raise ValueError(f"{len(x)} images but labels of shape {y.shape}")
    return Records(np.ascontiguousarray(x), np.ascontiguousarray(y))


_BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")

IDX = Form(
    "idx",
    ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
    _idx_set,
)
CIFAR_BINARY = Form("binary batches", tuple(f"{name}.bin" for name in _BATCHES), _cifar_binary)
CIFAR_PYTHON = Form("Python batches", _BATCHES, _cifar_python)
# The package spells it "lables".
CIFAR_PNG = Form(
    "PNG batches", (*(f"{name}.png" for name in _BATCHES), "train_lables.json", "test_lables.json"), _cifar_png
)
