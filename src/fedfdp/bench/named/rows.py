"""Measures named models: which way each goes, how far its sums are from float64's, and what its step costs.

Each row is written down when it is done, so that a long measurement can be stopped and go on.
"""

import copy
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from fedfdp.bench.cases import check_counts
from fedfdp.bench.measure import interleaved
from fedfdp.bench.named import GROUPS, NAMED, Named
from fedfdp.bench.peers import STEP_PEERS, Peer, Setting, Task
from fedfdp.core.errors import SettingError, nearest
from fedfdp.models.losses import cross_entropy
from fedfdp.privacy.clipping import clipped_sum
from fedfdp.privacy.clipping.deterministic import Deterministic
from fedfdp.privacy.clipping.plan import path_of

FEW = 4  # records by which the error is found
WAYS = {"rules": "fast", "vmap": "torch.func", "loop": "loop", "": "none"}


@dataclass(frozen=True)
class NamedRow:
    """One model. Errors are relative: the largest of any record's norm, and that of the clipped sum."""

    package: str
    name: str
    trained: int  # parameters
    batch: int
    path: str = ""  # fast, torch.func or loop
    reason: str = ""  # why it is not fast
    error: float | None = None
    rounding: float | None = None  # the same errors of plain autograd in single precision, record by record
    ratio: float | None = None  # the time of a step over a plain one's
    opacus: float | None = None
    opacus_fails: str = ""
    failed: str = ""  # why there is no more than this


def measured(
    names: Sequence[str] = (), *, seconds: float, batches: Sequence[int] = (), rows: Path | None = None
) -> Iterator[NamedRow]:
    """The rows of these models; of the usual ones if none is named, or of a group by its name.

    One for each number of records in `batches`, or for the model's own. Those that are in the file `rows` are not
    measured again.
    """
    names = GROUPS.get(";".join(names), names)
    for name in names:
        if name not in NAMED:
            raise SettingError("models", name, nearest(name, NAMED))
    check_counts("batches", batches)
    known = {(row.package, row.name, row.batch): row for row in read(rows)} if rows is not None else {}
    chosen = [replace(NAMED[name], batch=batch) for name in names for batch in batches or [NAMED[name].batch]]
    for named in chosen:
        row = known.get((named.package, named.name, named.batch))
        if row is None:
            row = measure(named, seconds=seconds)
            if rows is not None:
                with rows.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(row)) + "\n")
        yield row


def read(path: Path) -> list[NamedRow]:
    """The rows that were measured before."""
    if not path.exists():
        return []
    return [NamedRow(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def measure(named: Named, *, seconds: float) -> NamedRow:
    """One row. What cannot be measured is said in words."""
    try:
        model = named.build()
    except Exception as error:
        return NamedRow(named.package, named.name, 0, named.batch, failed=_words(error))
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    start = (named.package, named.name, trained, named.batch)
    try:
        path, reason, off, rounding = errors(named, model)
        times, fails = _times(named, seconds)
    except Exception as error:  # a table goes on with the next model
        return NamedRow(*start, failed=_words(error))
    return NamedRow(*start, WAYS[path], reason, off, rounding, times["ours"], times.get("opacus_hooks"), fails)


def errors(named: Named, model: nn.Module) -> tuple[str, str, float, float]:
    """The way a model goes and why, its error, and the error of single precision alone. Nothing is drawn at random."""
    x, y = named.records(FEW)
    with Deterministic():
        exact = _one_by_one(copy.deepcopy(model).double(), x.double() if x.is_floating_point() else x, y)
        rounded = _one_by_one(copy.deepcopy(model), x, y)
        clip = float(exact.norm(dim=1).median())
        found = clipped_sum(model, cross_entropy, x, y, clip=clip)
    path, reason = path_of(model)
    right = _clipped(exact, clip)
    own = (_off(found.norms.double(), exact.norm(dim=1)), _off(found.flat.double()[None], right[None]))
    single = rounded.norm(dim=1)
    plain = (_off(single, exact.norm(dim=1)), _off(_clipped(rounded, clip)[None], right[None]))
    return path, reason, max(own), max(plain)


def _one_by_one(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """(B, d) in double precision: every record's gradient by autograd alone."""
    weights = [p for p in model.parameters() if p.requires_grad]
    rows = []
    for i in range(len(x)):
        grads = torch.autograd.grad(cross_entropy(model(x[i : i + 1]), y[i : i + 1])[0], weights, allow_unused=True)
        parts = [torch.zeros_like(w) if g is None else g for w, g in zip(weights, grads, strict=True)]
        rows.append(torch.cat([part.flatten().double() for part in parts]))
    return torch.stack(rows)


def _clipped(rows: Tensor, clip: float) -> Tensor:
    c: Tensor = (clip / rows.norm(dim=1)).clamp(max=1)
    return (rows * c[:, None]).sum(0)


def _off(found: Tensor, right: Tensor) -> float:
    """The largest relative distance of rows, or of numbers."""
    if found.dim() == 1:
        found, right = found[:, None], right[:, None]
    return float(((found - right).norm(dim=1) / right.norm(dim=1)).max())


def _times(named: Named, seconds: float) -> tuple[dict[str, float], str]:
    """How many times as long as a plain step ours and Opacus' take, in processor time; why there is no Opacus'."""

    def made(peer: str) -> Peer:
        return STEP_PEERS[peer].make(Task(named.build(), *named.records(named.batch), Setting()))

    peers, fails = {name: made(name) for name in ("plain", "ours")}, ""
    if STEP_PEERS["opacus_hooks"].missing():
        fails = "not installed"
    else:
        try:
            peer = made("opacus_hooks")
            peer.step()
            peers["opacus_hooks"] = peer
        except Exception as error:
            fails = _words(error)
    timed = interleaved(peers, seconds=seconds, clock=time.process_time)
    return {name: timing.ratio for name, timing in timed.items() if math.isfinite(timing.ratio)}, fails


def _words(error: Exception) -> str:
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:160]}" if lines else type(error).__name__
