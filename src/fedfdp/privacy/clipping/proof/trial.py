"""The trial of one call on random numbers: its result for many records must hold its result for each record alone.

Draws from numpy, which no mode of torch's reaches. Never uses the numbers of records; weights and other constants are
used as they are, and once at random.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedfdp.privacy.clipping.deterministic import Deterministic
from fedfdp.privacy.clipping.proof.calls import Key, Shape, Size, TracedCall, at, called, name_of
from fedfdp.privacy.clipping.proof.functions import THROUGH_TIME, UNWRITTEN
from fedfdp.privacy.clipping.proof.places import Mixed, Order, Place, Reference, Rows

MANY = 11  # records in a trial: more than any pass is traced with, and a prime that divides no usual shift or size
ALONE = (0, 1, 5, MANY - 1)  # records whose result in the batch is compared with their result alone
LARGE = 2**18  # numbers; of larger tensors no copies in double precision are made

Values = Mapping[Reference, Tensor]
Draw = Callable[[list[int], torch.dtype, np.random.Generator], Tensor]


@dataclass(frozen=True)
class Trial:
    """One call to try: its arguments, with a Size where they grow with the records, and what it reads.

    `read` has a sample of every tensor among the arguments, and where that tensor keeps its records.
    """

    call: TracedCall
    key: Key
    read: Mapping[Reference, tuple[Tensor, Place]]

    def places(self, expected: tuple[Shape, ...], end: Rows | None = None, *, sure: bool) -> list[Place]:
        """Where each result, of these shapes, keeps its records. Mixed: no division into records fits every trial.

        `end` is the place, counted from the last dimension, if it is known from elsewhere. If it is not and the result
        must be `sure`, two divisions that fit are none: of equal numbers nobody can say whose they are.
        """
        bad = Mixed(f"{name_of(self.call.func)}: what it gives for a record depends on the other records")
        size = sum(math.prod(s.each if isinstance(s, Size) else s for s in shape) for shape in expected)
        fitting: list[list[Rows]] | None = None
        for number in range(9 if size < 64 else 3 if size < 4096 else 2):
            results = self._results(number)
            if isinstance(results, Mixed):
                return [results] * len(expected)
            whole, alone, spoilt = results
            if len(whole) != len(expected):
                return [bad] * len(expected)
            here = [list(_fits(i, shape, whole, alone)) for i, shape in enumerate(expected)]
            here = [[p for p in fits if _survives(p, i, whole, spoilt)] for i, fits in enumerate(here)]
            fitting = (
                here if fitting is None else [[p for p in a if p in b] for a, b in zip(fitting, here, strict=True)]
            )
        assert fitting is not None
        if end is not None:
            known = [end._replace(dim=end.dim + len(shape)) for shape in expected]
            fitting = [[place] if place in places else [] for place, places in zip(known, fitting, strict=True)]
        return [places[0] if len(places) == 1 or (places and not sure) else bad for places in fitting]

    def is_fixed(self) -> bool:
        """Whether the call gives the same for any number of records that are all alike: what they share, then."""
        chance = np.random.default_rng(0)
        for draw, most in itertools.product(_DRAWS, (8, 2, 0)):
            values = {r: self._drawn(r, draw, most, chance, 1.0, constants=False) for r in self.read}
            alone = self._alone(values, 0)
            alike = {
                r: place.repeat(alone[r], MANY) if isinstance(place, Rows) else alone[r]
                for r, (_, place) in self.read.items()
            }
            try:
                one, many = self._run(1, alone), self._run(MANY, alike)
            except Exception:  # a function may refuse numbers outside its domain: others may do
                continue
            return all(a.shape == b.shape and _close(a, b) for a, b in zip(one, many, strict=True))
        return False

    def _results(self, number: int) -> tuple[list[Tensor], list[list[Tensor]], dict[int, list[Tensor]]] | Mixed:
        """The results for many records and for some of them alone, on random numbers that the function accepts.

        Then, by record, those for many where all others are NaN: however small a dependence on them is, that shows it.
        """
        chance = np.random.default_rng(number)
        error: Exception | None = None
        large = any(sample.numel() > LARGE for sample, _ in self.read.values() if sample.is_floating_point())
        steady = name_of(self.call.func) not in THROUGH_TIME
        scale = (1.0, 1e3, 1e-3)[number % 3] if steady else 1.0  # an ε in a denominator may hide a dependence at one
        constants = (True, False) if number == 1 and not large and steady else (False,)
        for drawn, draw, most in itertools.product(constants, (_narrow,) if large else _DRAWS, (8, 2, 0)):
            values = {r: self._drawn(r, draw, most, chance, scale, constants=drawn) for r in self.read}
            try:
                whole = self._run(MANY, values)
                if not _mostly_numbers(whole):
                    continue
                alone = [self._run(1, self._alone(values, record)) for record in ALONE]
                return whole, alone, {} if number else self._spoilt(values)
            except Exception as refused:  # a function may refuse numbers outside its domain: others may do
                error = refused
        reason = str(error).strip().partition("\n")[0] if error else "no numbers to judge it by"
        return Mixed(f"{name_of(self.call.func)}: {reason}")

    def _drawn(
        self, reference: Reference, draw: Draw, most: int, chance: np.random.Generator, scale: float, *, constants: bool
    ) -> Tensor:
        """A random tensor in the place of this one. A constant is left as it is unless `constants` are drawn too.

        Whole numbers are below `most`. With most = 0 they are picked from the sample: not every index is valid.
        """
        sample, place = self.read[reference]
        if isinstance(place, Order):
            return place.of(MANY, sample.device)
        shape = list(sample.shape)
        if isinstance(place, Rows):
            shape[place.dim] = place.before * MANY * place.after
        elif not constants or not sample.is_floating_point():  # it is the same in every pass
            return sample.double() if sample.dtype == torch.float32 and draw is not _narrow else sample
        if sample.dtype == torch.bool:
            drawn = torch.from_numpy(np.asarray(chance.random(shape) < 0.5))
        elif sample.is_complex():
            drawn = torch.complex(draw(shape, sample.real.dtype, chance), draw(shape, sample.real.dtype, chance))
        elif sample.is_floating_point():
            drawn = draw(shape, sample.dtype, chance) * (1.0 if draw is _unit else scale)
        elif most or not sample.numel():
            drawn = torch.from_numpy(np.asarray(chance.integers(max(most, 1), size=shape))).to(sample.dtype)
        else:
            drawn = sample.flatten().cpu()[torch.from_numpy(np.asarray(chance.integers(sample.numel(), size=shape)))]
        return drawn.to(sample.device)

    def _alone(self, values: Values, record: int) -> Values:
        """The same values for one record."""

        def part(reference: Reference, value: Tensor) -> Tensor:
            _, place = self.read[reference]
            if isinstance(place, Order):
                return value[:1]
            return place.take(value, MANY, record) if isinstance(place, Rows) else value

        return {reference: part(reference, value) for reference, value in values.items()}

    def _spoilt(self, values: Values) -> dict[int, list[Tensor]]:
        """The results for many records of which all but one are NaN, by that one; none where NaN is not accepted."""
        found = {}
        for record in (0, MANY - 1):
            only = {r: _spoil(v, p, record) if isinstance(p := self.read[r][1], Rows) else v for r, v in values.items()}
            try:
                found[record] = self._run(MANY, only)
            except Exception:  # outside the function's domain
                continue
        return found

    def _run(self, batch: int, values: Values) -> list[Tensor]:
        """The results of the call on these values, then the arguments that it changed."""
        call = self.call
        values = {**values, **{reference: values[reference].clone() for reference in call.changed}}
        with torch.no_grad(), Deterministic():
            result = called(call.func, call.args, call.kwargs, self.key, batch, values)
        if name_of(call.func) in UNWRITTEN and isinstance(result, Tensor):
            result.zero_()  # as on the tape
        flat = result if isinstance(result, (tuple, list)) else [result]
        found = [t for t in flat if isinstance(t, Tensor)]
        return found + [values[reference] for reference in call.changed]


def _normal(shape: list[int], dtype: torch.dtype, chance: np.random.Generator) -> Tensor:
    return torch.from_numpy(np.asarray(chance.standard_normal(shape)))


def _unit(shape: list[int], dtype: torch.dtype, chance: np.random.Generator) -> Tensor:
    return torch.from_numpy(np.asarray(chance.random(shape)))


def _narrow(shape: list[int], dtype: torch.dtype, chance: np.random.Generator) -> Tensor:
    return _normal(shape, dtype, chance).to(dtype)


_DRAWS: tuple[Draw, ...] = (_normal, _unit, _narrow)  # in double precision where that works: rounding hides nothing


def _mostly_numbers(results: list[Tensor]) -> bool:
    """Whether the results can show anything: no more than half of one is NaN."""
    return all(not bool(r.isnan().double().mean() > 0.5) for r in results if r.is_floating_point() and r.numel())


def _fits(index: int, shape: Shape, whole: list[Tensor], alone: list[list[Tensor]]) -> Iterator[Rows]:
    """The ways to divide a result by records in which each part is what the record gives alone."""
    grown = [(dim, size) for dim, size in enumerate(shape) if isinstance(size, Size)]
    if len(grown) != 1 or grown[0][1].fixed or tuple(whole[index].shape) != at(shape, MANY):
        return
    dim, size = grown[0]
    for before in (n for n in range(1, size.each + 1) if size.each % n == 0):
        rows = Rows(dim, before, size.each // before)
        parts = (
            (rows.take(whole[index], MANY, record), given[index]) for record, given in zip(ALONE, alone, strict=True)
        )
        if all(part.shape == right.shape and _close(part, right) for part, right in parts):
            yield rows


def _spoil(value: Tensor, place: Rows, record: int) -> Tensor:
    """The tensor with NaN in the place of all records but one; whole numbers stay."""
    if not value.is_floating_point() and not value.is_complex():
        return value
    mine = torch.zeros(value.shape, dtype=torch.bool, device=value.device)
    left, right = value.shape[: place.dim], value.shape[place.dim + 1 :]
    mine.view(*left, place.before, MANY, place.after, *right).select(place.dim + 1, record).fill_(True)
    return value.masked_fill(~mine, torch.nan)


def _survives(place: Rows, index: int, whole: list[Tensor], spoilt: Mapping[int, list[Tensor]]) -> bool:
    """Whether a record's part of a result is the same where all other records are NaN."""
    return all(
        _close(place.take(results[index], MANY, record), place.take(whole[index], MANY, record))
        for record, results in spoilt.items()
    )


def _close(one: Tensor, other: Tensor) -> bool:
    """Whether two results are equal but for rounding; NaN counts as equal to NaN."""
    same = (one == other) | ((one != one) & (other != other))
    if not one.is_floating_point():
        return bool(same.all())
    unit = 1e3 * torch.finfo(one.dtype).eps
    size = other.nan_to_num(0, 0, 0).abs().amax() if other.numel() else 0.0
    near = (one - other).abs() <= unit * (other.abs() + size)
    return bool((near | same).all())
