"""Applies features to all records of a pool once, and keeps them: found again by content, read as a memory map.

Records never meet: a map that is not ours is given one record at a time, and must keep nothing of it. The files hold
what the records hold, so only their owner may read them.
"""

import contextlib
import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from fedfdp.core import files
from fedfdp.core.errors import DataError, SettingError
from fedfdp.core.identity import examine
from fedfdp.core.records import digest
from fedfdp.core.trees import Inputs, Tree, call, form_of, parts_of
from fedfdp.features import form_after, shape_after
from fedfdp.privacy.clipping.job import Job
from fedfdp.privacy.clipping.one_by_one import Clean, with_draws_of_their_own
from fedfdp.privacy.clipping.state import Unchanged, state_of
from fedfdp.privacy.clipping.undo import changes_undone

BATCH = 32  # records of ours at a time: what they become stays in a core's cache
Say = Callable[[str], None]


def place() -> Path:
    """Where features are kept: below $FEDFDP_DATA, else ~/.cache/fedfdp."""
    return Path(os.environ.get("FEDFDP_DATA") or "~/.cache/fedfdp").expanduser() / "features"


def digest_of(module: nn.Module) -> str:
    """What a map computes, as a digest; a SettingError if it holds what no digest can identify.

    Ours say which version of their code they are, so that a run can be read with a later Python. The code of others is
    read.
    """
    if _ours(module):
        settings = {name: value for name, value in vars(module).items() if not name.startswith("_")}
        del settings["training"]
        about = [type(module).__qualname__, str(module.version), repr(sorted(settings.items()))]
        return digest(about, dict(module.named_parameters()), dict(module.named_buffers()))
    found = examine(module, "features")
    if found.unknown:
        fix = "keep functions, numbers and tensors in it"
        raise SettingError("features", type(module).__name__, f"{found.unknown} cannot be identified", fix)
    return found.digest


def _ours(module: nn.Module) -> bool:
    """Whether it is a map of ours as we made it: its class is, and nobody has hung anything into it."""
    kind = type(module)
    known = kind.__module__.startswith("fedfdp.features.") and vars(sys.modules[kind.__module__]).get(kind.__name__)
    return (
        known is kind
        and hasattr(module, "version")
        and not any(
            layer._forward_hooks or layer._forward_pre_hooks or "forward" in vars(layer) or not _known(layer)
            for layer in module.modules()
        )
    )


def _known(layer: nn.Module) -> bool:
    return type(layer).__module__.partition(".")[0] in ("fedfdp", "torch", "efficientnet_lite_pytorch")


def mapped(
    module: nn.Module,
    x: Inputs,
    *,
    folder: Path | None = None,
    threads: int | None = None,
    progress: Say | None = None,
) -> Tensor:
    """The features of every record of `x`, float16, in its order: from the cache, or computed into it.

    Args:
        module: the map, frozen and in evaluation mode.
        x: all records.
        folder: where features are kept; None: the usual place.
        threads: how many compute; None: as many as torch may use.
        progress: told now and then how far it is, with the time left.
    """
    if isinstance(x, Tree):
        form_after(module, form_of(x))
    assert isinstance(x, Tensor)
    if not x.is_floating_point():
        fix = "leave [features] out"
        raise SettingError("features", type(module).__name__, "records are token numbers: there is nothing to map", fix)
    return kept(module, x, shape_after(module, tuple(x.shape[1:])), np.float16, folder, threads, progress)


def kept(
    module: nn.Module,
    x: Inputs,
    one: tuple[int, ...],
    kind: type[np.floating],
    folder: Path | None = None,
    threads: int | None = None,
    progress: Say | None = None,
) -> Tensor:
    """The same of any map and any records; `one` is the shape of what it gives for a record, `kind` its precision."""
    shape, folder, before = (len(x), *one), folder or place(), digest_of(module)
    path = folder / f"{_content(before, x)}.npy"
    with _disk_errors(folder):
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with files.locked(folder / f".{path.stem}.lock", wait=True):
                if not path.exists():  # another process may have made it while this one waited
                    _compute(module, x, shape, kind, path, threads or torch.get_num_threads(), progress)
                    if digest_of(module) != before:
                        path.unlink()
                        allowed = "it changes while it maps records, so one record could depend on another"
                        raise SettingError("features", type(module).__name__, allowed, "keep nothing in forward")
        try:
            found = np.load(path, mmap_mode="c")  # copy on write: nothing that is done to it reaches the file
        except ValueError:
            found = None
    if found is None or found.shape != shape or found.dtype != kind:
        raise DataError(f"{path} is damaged; delete it and start again")
    return torch.from_numpy(found)


def _content(map_digest: str, x: Inputs) -> str:
    sha = hashlib.sha256(map_digest.encode())
    for part in parts_of(x):
        sha.update(f"{part.dtype}{tuple(part.shape)}".encode())
        sha.update(part.contiguous().numpy().data)
    return sha.hexdigest()[:32]


def _compute(
    module: nn.Module,
    x: Inputs,
    shape: tuple[int, ...],
    kind: type[np.floating],
    path: Path,
    threads: int,
    progress: Say | None,
) -> None:
    """Writes beside the file, then renames: it is whole or not there."""
    beside = path.with_name(f".{path.stem}.part")
    try:
        out = np.lib.format.open_memmap(beside, mode="w+", dtype=kind, shape=shape)
        os.chmod(beside, 0o600)
        for start, found in _batches(module, x, kind, threads, progress):
            out[start : start + len(found)] = found
        out.flush()
        del out
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def _batches(
    module: nn.Module, x: Inputs, kind: type[np.floating], threads: int, progress: Say | None
) -> Iterator[tuple[int, np.ndarray]]:
    """The features from each start on."""
    told = begun = time.monotonic()
    most = 6e4 if kind is np.float16 else float(np.finfo(kind).max)
    for start, found in _side_by_side(module, x, threads) if _ours(module) else _one_by_one(module, x):
        if not bool(found.isfinite().all()) or float(found.abs().max()) > most:
            row = start + int((~(found.flatten(1).abs() <= most)).any(1).nonzero()[0])
            name = type(module).__name__
            raise DataError(f"features of record {row} are not finite or above 60,000; scale what {name} gives")
        yield start, found.to(getattr(torch, np.dtype(kind).name)).numpy()
        now, so_far = time.monotonic(), min(start + len(found), len(x))
        if progress is not None and now - told > 1 and so_far < len(x):
            left = (now - begun) / so_far * (len(x) - so_far)
            progress(f"features: {so_far:,} of {len(x):,} records, {_clock(left)} left")
            told = now
    if progress is not None:
        progress(f"features: {len(x):,} records in {_clock(time.monotonic() - begun)}")


def _side_by_side(module: nn.Module, x: Inputs, threads: int) -> Iterator[tuple[int, Tensor]]:
    """By a map that we know. Threads share no batch: where cores are busy, none waits for another."""

    def features(start: int) -> tuple[int, Tensor]:
        with torch.inference_mode():
            return start, call(module, x[start : start + BATCH])

    before = torch.get_num_threads()
    with ThreadPoolExecutor(max(1, threads), initializer=torch.set_num_threads, initargs=(1,)) as pool:
        try:
            yield from pool.map(features, range(0, len(x), BATCH))
        finally:
            pool.shutdown(cancel_futures=True)
    torch.set_num_threads(before)


def _one_by_one(module: nn.Module, x: Inputs) -> Iterator[tuple[int, Tensor]]:
    """By any map: what it keeps of a record is put back or refused before the next, and so are its draws."""
    name, job = type(module).__name__, Job(module, torch.zeros_like, {})
    kept = Unchanged(job, state_of(job))
    for i in with_draws_of_their_own([0] * len(x)):
        with torch.inference_mode(), changes_undone(job.layers), Clean():
            found = call(module, x[i : i + 1])
            if i == 0 and not torch.equal(found, call(module, x[:1])):
                allowed = "gives other features when it is called again: it draws at random or remembers"
                raise SettingError("features", name, allowed, "call .eval(), take dropout out")
        try:
            kept.check()
        except SettingError as error:
            allowed = f"{error.setting} changes while it maps records, so one record could depend on another"
            raise SettingError("features", name, allowed, "keep nothing in forward") from error
        yield i, found


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


@contextlib.contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        fix = "free some space or choose another folder with FEDFDP_DATA=DIR"
        raise DataError(f"cannot keep features in {folder}: {error.strerror or error}; {fix}") from error
