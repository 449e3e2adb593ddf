"""Crashes at every byte, kills, cuts, edits, swaps, second writers and full disks: never a ledger that counts less."""

import errno
import itertools
import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import pytest

from fedfdp.core.errors import RunError
from fedfdp.privacy.accounting import Event
from fedfdp.privacy.ledger import Ledger, journal
from fedfdp.privacy.ledger.journal import head_of
from fedfdp.privacy.ledger.reading import read_ledger

SETTINGS = {"client": "alice", "data": "d", "config": "c", "budget": None, "delta": 1e-5, "accountant": "rdp"}
STEP = (Event(0.05, (2.0, 5.0)),)


def open_ledger(path: Path, *, sync: bool = False) -> Ledger:
    return Ledger.open(path, sync=sync, **SETTINGS)


def charged(ledger: Ledger) -> int:
    return sum(count for _, _, count in ledger.history)


def counted(path: Path) -> int:
    """Charges in the ledger after a restart, both in its total and line by line; and it goes on from there."""
    with open_ledger(path) as ledger:
        total = charged(ledger)
        assert len(list(ledger.entries())) == total
        ledger.charge(10**6, "after the crash", STEP, replayable=False)
    with open_ledger(path) as ledger:
        assert charged(ledger) == total + 1
    return total


def fill(path: Path, charges: int = 4) -> None:
    with open_ledger(path) as ledger:
        for number in range(charges):
            ledger.charge(number, f"request {number}", STEP, replayable=True)


class Recorder:
    """Every write to the two files in order, with the number of charges that had returned before it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.writes: list[tuple[str, int, bytes, int]] = []
        self.returned = 0
        write, pwrite = os.write, os.pwrite
        monkeypatch.setattr(journal.os, "write", lambda f, b: self._note("file", -1, bytes(b)) or write(f, b))
        monkeypatch.setattr(journal.os, "pwrite", lambda f, b, at: self._note("head", at, bytes(b)) or pwrite(f, b, at))

    def _note(self, kind: str, offset: int, content: bytes) -> None:
        self.writes.append((kind, offset, content, self.returned))

    def states(self) -> "itertools.chain[tuple[bytes, bytes, int]]":
        """Both files at every byte of every write, and the charges that had returned by then."""
        file, head = bytearray(), bytearray()
        for kind, offset, content, returned in self.writes:
            for length in range(len(content) + 1):
                part = content[:length]
                if kind == "file":
                    yield bytes(file) + part, bytes(head), returned
                else:
                    torn = bytearray(head).ljust(offset, b"\0")
                    torn[offset : offset + length] = part
                    yield bytes(file), bytes(torn), returned
            if kind == "file":
                file += content
            else:
                head = head.ljust(offset, b"\0")
                head[offset : offset + len(content)] = content


@pytest.mark.parametrize("sync", [True, False])
def test_a_crash_at_any_byte_never_under_counts_nor_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: bool
) -> None:
    path = tmp_path / "ledger.jsonl"
    with monkeypatch.context() as patch:
        recorder = Recorder(patch)
        with open_ledger(path, sync=sync) as ledger:
            for number in range(3):
                ledger.charge(number, f"request {number}" * (number + 1), STEP, replayable=True)
                recorder.returned += 1
    monkeypatch.setattr(journal.os, "fsync", lambda file: None)  # the crashes are over; only speed is at stake
    seen = set()
    for number, (file, head, returned) in enumerate(recorder.states()):
        crashed = tmp_path / f"{number}.jsonl"
        crashed.write_bytes(file)
        head_of(crashed).write_bytes(head)
        total = counted(crashed)
        assert returned <= total <= returned + 1
        seen.add((returned, total))
        crashed.unlink()
        head_of(crashed).unlink()
    assert {(0, 0), (0, 1), (1, 1), (1, 2), (2, 2), (2, 3)} <= seen


def test_a_charge_is_written_and_flushed_before_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = []
    names = {}
    for name in ("write", "pwrite", "fdatasync"):
        original = getattr(os, name)
        monkeypatch.setattr(
            journal.os, name, lambda f, *rest, o=original, n=name: done.append((n, names.get(f, f))) or o(f, *rest)
        )
    with open_ledger(tmp_path / "ledger.jsonl", sync=True) as ledger:
        done.clear()
        names.update({ledger._file._journal._file: "file", ledger._file._journal._head: "head"})
        ledger.charge(0, "a", STEP, replayable=True)
        assert done == [("pwrite", "head"), ("fdatasync", "head"), ("write", "file"), ("fdatasync", "file")]


def charge_until_killed(path: Path, pipe: int) -> None:
    with open_ledger(path) as ledger:
        for number in itertools.count(charged(ledger)):
            ledger.charge(number, f"request {number}", STEP, replayable=True)
            os.write(pipe, b".")  # the release


def test_killed_at_random_instants(tmp_path: Path) -> None:
    path, rng = tmp_path / "ledger.jsonl", random.Random(0)
    released = 0
    for number in range(25):
        read, write = os.pipe()
        child = multiprocessing.get_context("fork").Process(target=charge_until_killed, args=(path, write))
        child.start()
        os.close(write)
        if number % 2:  # on a busy machine a child may be killed before it does anything: every second one may begin
            released += len(os.read(read, 1))
        time.sleep(rng.uniform(0.001, 0.03))
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        while chunk := os.read(read, 1 << 16):
            released += len(chunk)
        os.close(read)
        with open_ledger(path) as ledger:
            assert charged(ledger) >= released
            released = charged(ledger)
    assert released >= 12


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of openings, each of which would wait for the disk at its end."""
    monkeypatch.setattr(journal.os, "fsync", lambda file: None)


def refused_or_complete(path: Path, charges: int) -> str:
    try:
        with open_ledger(path) as ledger:
            assert charged(ledger) == charges
            return "complete"
    except RunError as error:
        return "refused" if str(path) in str(error) else str(error)


@pytest.mark.usefixtures("no_waiting")
def test_a_ledger_cut_anywhere_is_refused_or_completed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    fill(path)
    file, head = path.read_bytes(), head_of(path).read_bytes()
    last = file.rindex(b"\n", 0, -1) + 1
    for length in range(len(file)):
        path.write_bytes(file[:length])
        head_of(path).write_bytes(head)
        assert refused_or_complete(path, 4) == ("complete" if length >= last else "refused")
        if length >= last:
            assert path.read_bytes() == file
    path.unlink()
    assert refused_or_complete(path, 4) == "refused"


@pytest.mark.usefixtures("no_waiting")
def test_a_head_cut_anywhere_never_loses_a_line(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    fill(path)
    file, head = path.read_bytes(), head_of(path).read_bytes()
    for length in [*range(0, 400), *range(2**16 - 5, len(head))]:
        head_of(path).write_bytes(head[:length])
        refused_or_complete(path, 4)
        assert path.read_bytes() == file
    head_of(path).unlink()
    assert refused_or_complete(path, 4) == "refused"


@pytest.mark.usefixtures("no_waiting")
def test_every_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    fill(path, charges=2)
    file, head = path.read_bytes(), head_of(path).read_bytes()
    for at in range(len(file)):
        for flip in (1, 0x0A ^ file[at] if file[at] != 0x0A else 0x20):
            path.write_bytes(file[:at] + bytes([file[at] ^ flip]) + file[at + 1 :])
            head_of(path).write_bytes(head)
            outcome = refused_or_complete(path, 2)
            assert outcome == "refused" or path.read_bytes() == file  # only the end of the last line can be completed


def test_lines_moved_removed_repeated_or_rolled_back(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    fill(path, charges=3)
    older = path.read_bytes()
    fill(path, charges=5)
    header, *lines = path.read_bytes().splitlines(keepends=True)
    for changed in (
        [lines[1], lines[0], *lines[2:]],
        [*lines[:2], *lines[3:]],
        [*lines, lines[-1]],
        [*lines[:4], lines[3]],
        lines[:3],
    ):
        path.write_bytes(b"".join([header, *changed]))
        assert refused_or_complete(path, 5) == "refused"
    path.write_bytes(older)
    assert refused_or_complete(path, 5) == "refused"
    path.write_bytes(b"".join(lines))
    assert refused_or_complete(path, 5) == "refused"


def test_another_ledger_put_in_its_place_is_noticed(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours.jsonl", tmp_path / "theirs.jsonl"
    fill(ours, charges=2)
    with open_ledger(theirs) as ledger:
        for number in range(2):
            ledger.charge(number, "other", STEP, replayable=True)
    ours.write_bytes(theirs.read_bytes())
    with pytest.raises(RunError, match="not the one in the head file"):
        open_ledger(ours)


def test_a_ledger_of_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.jsonl"
    with monkeypatch.context() as patch:
        patch.setattr(journal, "VERSION", 2)
        fill(path)
    with pytest.raises(RunError, match="version 2; this program reads version 1"):
        open_ledger(path)


def test_two_writers(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with open_ledger(path), pytest.raises(RunError, match="another process") as error:
        open_ledger(path)
    assert str(path) in str(error.value)
    open_ledger(path).close()


def test_a_failed_opening_lets_go_of_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    fill(path)
    with pytest.raises(RunError, match="another config"):
        Ledger.open(path, sync=False, **{**SETTINGS, "config": "other"})
    open_ledger(path).close()
    with pytest.raises(RunError, match="cannot be opened"):
        open_ledger(tmp_path / "missing" / "ledger.jsonl")


@pytest.mark.parametrize("fails", ["write", "pwrite"])
def test_a_full_disk_stops_the_ledger_and_a_restart_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = open_ledger(path)
    ledger.charge(0, "a", STEP, replayable=True)
    write, pwrite = os.write, os.pwrite

    def half_write(file: int, content: memoryview) -> int:
        if len(content) < 60:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, content[: len(content) - 59])

    with monkeypatch.context() as patch:
        patch.setattr(journal.os, "write", half_write if fails == "write" else write)
        patch.setattr(journal.os, "pwrite", (lambda f, b, at: pwrite(f, b[:50], at)) if fails == "pwrite" else pwrite)
        with pytest.raises(RunError, match="No space left"):
            ledger.charge(1, "b", STEP, replayable=True)
    with pytest.raises(RunError, match="open it again"):
        ledger.charge(1, "b", STEP, replayable=True)
    assert charged(ledger) == 1
    ledger.close()
    assert counted(path) == (2 if fails == "write" else 1)


def test_a_changed_clock_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    fill(path)
    os.utime(path, (0, 0))
    os.utime(head_of(path), (4e9, 4e9))
    assert refused_or_complete(path, 4) == "complete"
    assert path.read_bytes() == (fill(tmp_path / "again.jsonl"), (tmp_path / "again.jsonl").read_bytes())[1]


@pytest.mark.parametrize("written", [0, 20])
def test_who_only_reads_counts_a_line_that_is_announced_and_writes_nothing(tmp_path, written, monkeypatch):
    """After a crash, or while the line is being written."""
    path = tmp_path / "ledger"
    fill(path)

    def dies(self: journal.Journal, line: bytes) -> None:
        os.write(self._file, line[:written])
        raise KeyboardInterrupt

    with open_ledger(path) as ledger, monkeypatch.context() as patch:
        patch.setattr(journal.Journal, "_write", dies)
        with pytest.raises(KeyboardInterrupt):
            ledger.charge(4, "request 4", STEP, replayable=True)
    before = path.read_bytes(), head_of(path).read_bytes()
    seen: list[int] = []
    charges = read_ledger(path, lambda entry: seen.append(entry.round))
    assert seen == [0, 1, 2, 3, 4]
    assert sum(count for *_, count in charges.histories["alice"]) == 5
    assert (path.read_bytes(), head_of(path).read_bytes()) == before
    assert counted(path) == 5
