"""Takes the records of a batch through a model a chunk at a time, the way its plan says.

A chunk that does not follow the proven pass is repeated with fewer records, in the end with copies of a single one, and
only a record whose copies do not follow it either goes alone. So which way a record goes never depends on another one.
What a pass gave that was not proven is dropped.
"""

import logging
import math
from collections.abc import Iterator
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from fedfdp.core.errors import SettingError
from fedfdp.core.trees import Inputs, joined
from fedfdp.privacy.clipping.by_rules import Proven
from fedfdp.privacy.clipping.contributions import Contribution
from fedfdp.privacy.clipping.job import Job
from fedfdp.privacy.clipping.made_up import RECORDS
from fedfdp.privacy.clipping.one_by_one import loop_pass, vmap_pass
from fedfdp.privacy.clipping.plan import Plan
from fedfdp.privacy.clipping.proof.calls import UnsupportedError
from fedfdp.privacy.clipping.state import State

log = logging.getLogger("fedfdp")

HELD = 3 * 2**24  # numbers: 200 megabytes in single precision; larger chunks are no faster

Found = TypeVar("Found", covariant=True)


class Together(Protocol[Found]):
    """What is found for all records in one pass by the rules."""

    def __call__(self, job: Job, x: Inputs, y: Tensor, proven: Proven) -> Found: ...


class Alone(Protocol[Found]):
    """The same, with a pass for each record."""

    def __call__(self, job: Job, x: Inputs, y: Tensor, state: State | None) -> Found: ...


def in_chunks(
    plan: Plan, job: Job, x: Inputs, y: Tensor, step: int, *, together: Together[Found], alone: Alone[Found]
) -> Iterator[tuple[int, int, Found]]:
    """(start, stop, what is found for the records from start to stop), until all records are done.

    A single record is passed to the rules in copies, so what is found may have more rows than there are records.
    """
    for start in range(0, len(x), step):
        stop = min(start + step, len(x))
        if plan.proven is not None:
            part = (x, y) if stop - start == len(x) else (x[start:stop], y[start:stop])
            try:
                found = together(job, *_not_alone(*part), plan.proven)
            except UnsupportedError:
                _warn_once(job)
                if stop - start > 1:
                    # A model that computes otherwise for many records gets as few as it was examined with.
                    few = RECORDS if stop - start > RECORDS else 1
                    smaller = in_chunks(plan, job, x[start:stop], y[start:stop], few, together=together, alone=alone)
                    yield from ((start + first, start + last, part) for first, last, part in smaller)
                    continue
            else:
                yield start, stop, found
                continue
        yield start, stop, alone(job, x[start:stop], y[start:stop], plan.state)


def records_at_a_time(chunk: int | None, plan: Plan, job: Job) -> int:
    """The chunk that was asked for, or as many records as keep what is held for them within HELD numbers."""
    if chunk is not None:
        if chunk < 1:
            raise SettingError("chunk", chunk, "must be at least 1")
        return chunk
    each = plan.held if plan.how == "rules" else sum(math.prod(p.shape) for p in job.params.values())
    return max(1, HELD // max(1, each))


def vmap_or_loop_pass(job: Job, x: Inputs, y: Tensor, state: State | None) -> tuple[Tensor, list[Contribution]]:
    """Through torch.func, or in a loop where the model takes a branch that torch.func does not."""
    try:
        return vmap_pass(job, x, y, state)
    except RuntimeError:
        _warn_once(job)
        return loop_pass(job, x, y, state)


def _not_alone(x: Inputs, y: Tensor) -> tuple[Inputs, Tensor]:
    """Of a single record as many copies as the model was examined with: some models treat one or two otherwise."""
    return (x, y) if x.shape[0] != 1 else (joined([x] * RECORDS), torch.cat([y] * RECORDS))


_said: set[str] = set()


def _warn_once(job: Job) -> None:
    name = type(job.model).__name__
    if name not in _said:
        _said.add(name)
        log.warning("%s: some passes differ from the one that was examined; these take a few records at a time", name)
