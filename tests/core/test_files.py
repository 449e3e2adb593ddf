"""Files that are whole or absent, and locks."""

import os

import pytest

from fedfdp.core.files import locked, write_whole


def test_a_file_is_replaced_whole_or_stays_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "state"
    write_whole(path, b"first")
    write_whole(path, b"second, longer")
    assert path.read_bytes() == b"second, longer"

    def full(*args) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, b"third")
    assert path.read_bytes() == b"second, longer"
    assert [file.name for file in tmp_path.iterdir()] == ["state"]


def test_a_lock_is_held_once_and_given_back(tmp_path):
    path = tmp_path / "lock"
    with locked(path, wait=False), pytest.raises(BlockingIOError), locked(path, wait=False):
        pass
    with locked(path, wait=False):
        pass
