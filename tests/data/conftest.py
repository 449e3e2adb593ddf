"""A dataset small enough to make by hand, known to the catalog as `tiny` while a test runs."""

import struct
from dataclasses import dataclass

import numpy as np
import pytest

from fedfdp.data.named import catalog
from fedfdp.data.named.entry import Images
from fedfdp.data.named.layout import Records
from fedfdp.data.named.mnist import IDX
from fedfdp.data.named.origins import FetchError


def idx_bytes(values):
    return struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.tobytes()


@dataclass(frozen=True)
class Fake:
    """An origin that writes given files, or fails."""

    files: tuple[tuple[str, bytes], ...] = ()
    error: str = ""
    title: str = "a fake"

    def fetch(self, folder, say):
        if self.error:
            raise FetchError(self.error)
        for name, content in self.files:
            (folder / name).write_bytes(content)


class Tiny:
    """Seven images of 4 × 3 pixels, five of them the official training part, as records and as idx files."""

    fake = Fake
    idx_bytes = staticmethod(idx_bytes)

    def __init__(self):
        self.x = x = np.random.default_rng(0).integers(0, 256, (7, 1, 4, 3), dtype=np.uint8)
        self.y = y = np.arange(7, dtype=np.uint8)
        self.files = dict(zip(IDX.files, map(idx_bytes, (x[:5, 0], y[:5], x[5:, 0], y[5:])), strict=True))
        self.good = Fake(tuple(self.files.items()))

    def entry(self, *origins, records=None, layouts=(IDX,), sha256=None):
        records = records or Records(self.x, self.y)
        return Images(
            name="tiny",
            records=len(records.y),
            train=5,
            shape=records.x.shape[1:],
            classes=10,
            brightest=255,
            sha256=sha256 or records.digest(),
            layouts=layouts,
            origins=origins or (self.good,),
        )

    def comes_from(self, *origins, **more):
        catalog.CATALOG["tiny"] = self.entry(*origins, **more)

    @staticmethod
    def put(folder, files):
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
        return folder


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """The default cache is tmp_path / "cache" meanwhile."""
    monkeypatch.setenv("FEDFDP_DATA", str(tmp_path / "cache"))
    made = Tiny()
    monkeypatch.setitem(catalog.CATALOG, "tiny", made.entry())
    return made
