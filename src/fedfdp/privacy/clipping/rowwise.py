"""Proves of a noted pass that no call lets records meet, and finds where each value keeps its records.

Each call is examined by itself on numbers drawn at random: what it gives for many records must hold, record by record,
what it gives for each record alone. Only functions that are known to use their arguments alike whatever their values
are judged so; what any other gives is taken to mix the records. Weights and records at hand decide nothing.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedfdp.privacy.clipping.known import SHAPE_ONLY, UNWRITTEN, condition
from fedfdp.privacy.clipping.watch import Entry, Program, Recorder, Reference, Size, Step, UnsupportedError, at, name_of

MANY = 11  # records in a trial: more than any pass is noted with, and no divisor of what shifts and sizes usually are
ALONE = (0, 1, 5, MANY - 1)
LARGE = 2**18  # numbers; of larger tensors no copies in double precision are made


class Rows(NamedTuple):
    """Where a value keeps its records: dimension `dim` runs over (before, records, after)."""

    dim: int
    before: int
    after: int

    def take(self, tensor: Tensor, records: int, record: int) -> Tensor:
        """One record of it; the dimension stays."""
        left, right = tensor.shape[: self.dim], tensor.shape[self.dim + 1 :]
        apart = tensor.reshape(*left, self.before, records, self.after, *right)
        return apart.select(self.dim + 1, record).reshape(*left, self.before * self.after, *right)


@dataclass(frozen=True)
class Mixed:
    """A value in which records may have met, and why."""

    reason: str


class Order(NamedTuple):
    """The numbers of the records, 0 to B − 1: only for picking something of each, as in x[arange(B), last]."""


Place = Rows | Mixed | Order | None  # None: it does not depend on the records
Shape = tuple[int | Size, ...]


def prove(
    one: Recorder, other: Recorder, sizes: tuple[int, int], inputs: int
) -> tuple[Program, dict[Reference, Place]]:
    """The pass as a program for any number of records, and where each of its values keeps them.

    `one` and `other` are the same pass noted with two numbers of records; the first `inputs` values are the records'.
    """
    if len(one.entries) != len(other.entries):
        raise UnsupportedError("the model makes other calls for more records")
    if len(one.outside) != len(other.outside) or not all(map(_same, one.outside, other.outside)):
        raise UnsupportedError("numbers from outside change from pass to pass, or with the number of records")
    proof = _Proof(one, other, sizes)
    for number in range(inputs):
        proof.places[Reference("value", number)] = Rows(0, 1, 1)
    steps = [proof.step(first, second) for first, second in zip(one.entries, other.entries, strict=True)]
    return Program(steps, one.outside), proof.places


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and _close(one, other, exact=True)


class _Proof:
    def __init__(self, one: Recorder, other: Recorder, sizes: tuple[int, int]) -> None:
        self.one, self.other, self.sizes = one, other, sizes
        self.writes = {_memory(one.samples[changed]) for entry in one.entries for changed in entry.changed}
        self.places: dict[Reference, Place] = {}

    def step(self, first: Entry, second: Entry) -> Step:
        name = name_of(first.func)
        if (first.func, first.made, first.changed) != (second.func, second.made, second.changed):
            raise UnsupportedError(f"{name}: other calls are made for more records")
        if (shared := first.shared if self._written(first) else None) is not None and second.shared != shared:
            raise UnsupportedError(f"{name}: a view for some numbers of records, a copy for others")
        key, shapes = (self._merged(a, b, name) for a, b in ((first.key, second.key), (first.shapes, second.shapes)))
        self._judge(first, key, shapes, name)
        return Step(first.func, key, shapes, shared)

    def _written(self, entry: Entry) -> bool:
        """Whether anything writes to the call's first argument or result: then it matters if they share memory."""
        first = next(_references(entry.key), None)
        values = [self.one.samples[r] for r in (first, *entry.made) if r in self.one.samples]
        spans = [_memory(value) for value in values]
        return any(start < last and begin < end for start, end in spans for begin, last in self.writes)

    def _merged(self, one: Any, other: Any, name: str) -> Any:
        """The same thing in both passes, with a Size where a whole number differs."""
        if type(one) is tuple and type(other) is tuple and len(one) == len(other):
            return tuple([self._merged(a, b, name) for a, b in zip(one, other, strict=True)])
        if one is other or one == other:
            return one
        if type(one) is int and type(other) is int and (one - other) % (self.sizes[0] - self.sizes[1]) == 0:
            each = (one - other) // (self.sizes[0] - self.sizes[1])
            return Size(one - each * self.sizes[0], each)
        raise UnsupportedError(f"{name}: an argument depends on the number of records, or on chance")

    def _shape(self, reference: Reference) -> Shape:
        one, other = (tuple(noted.samples[reference].shape) for noted in (self.one, self.other))
        merged: Shape = self._merged(one, other, "a shape")
        return merged

    def _place(self, reference: Reference) -> Place:
        return self.places.get(reference)

    def _judge(self, entry: Entry, key: Any, shapes: Any, name: str) -> None:
        """Says of every result where it keeps its records; raises where records could leave the pass or its values."""
        read = list(dict.fromkeys(_references(entry.key)))
        records = [reference for reference in read if self._place(reference) is not None]
        if not entry.made and not entry.changed:
            if records:
                raise UnsupportedError(
                    f"{name}: a number that depends on the records is used outside the model's tensors"
                )
            return
        if all(reference in read for reference in entry.made) and not entry.changed:
            return  # an argument as it is
        places = self._find(entry, key, shapes, name, read, records)
        for reference, place in zip((*entry.made, *entry.changed), places, strict=True):
            if reference not in entry.changed:
                self.places[reference] = place
            elif isinstance(place, Mixed) or place != self._place(reference) or self._kept_apart(reference, place):
                # Other values may share its memory: where they keep their records must not change.
                raise UnsupportedError(f"{name}: records are written where none, or others, are kept")

    def _kept_apart(self, reference: Reference, place: Place) -> bool:
        """Whether records are written into memory that also is a value without records, or the other way round."""
        first, last = _memory(self.one.samples[reference])
        for other, sample in self.one.samples.items():
            if other.kind == "value" and other not in self.places:
                continue  # it is made later, from values that are judged then
            start, end = _memory(sample)
            if start < last and first < end and (self._place(other) is None) != (place is None):
                return True
        return False

    def _find(
        self, entry: Entry, key: Any, shapes: Any, name: str, read: list[Reference], records: list[Reference]
    ) -> list[Place]:
        changed = tuple([self._shape(reference) for reference in entry.changed])
        expected: tuple[Shape, ...] = (*shapes, *changed)
        if name in SHAPE_ONLY:
            records = [reference for reference in records if isinstance(self._place(reference), Mixed)]
        if not records and not _grows(key) and not _grows(expected):
            return [None] * len(expected)
        if mixed := next((p for r in records if isinstance(p := self._place(r), Mixed)), None):
            return [mixed] * len(expected)
        if name == "arange" and expected == ((Size(0, 1),),) and _counts(self.one.samples[entry.made[0]]):
            return [Order()]
        if any(isinstance(self._place(r), Order) for r in records) and not self._picks(key, name):
            return [Mixed(f"{name}: the places of records in the batch are used")] * len(expected)
        met = condition(name)
        if met is None or not met(entry, [place for r in read if isinstance(place := self._place(r), Rows)]):
            return [Mixed(f"{name}: not known to keep records apart")] * len(expected)
        return self._tried(entry, key, expected, name, read)

    def _picks(self, key: Any, name: str) -> bool:
        """Whether a call is x[arange(B), …] on a value whose first dimension is the records."""
        if name != "__getitem__" or type(key[1]) is not tuple or not key[1] or self._place(key[0]) != Rows(0, 1, 1):
            return False
        used = [reference for reference in _references(key[1]) if isinstance(self._place(reference), Order)]
        return used == [key[1][0]]

    def _tried(
        self, entry: Entry, key: Any, expected: tuple[Shape, ...], name: str, read: list[Reference]
    ) -> list[Place]:
        """Where the results keep their records, seen on random numbers."""
        bad = Mixed(f"{name}: what it gives for a record depends on the other records")
        size = sum(math.prod(s.each if isinstance(s, Size) else s for s in shape) for shape in expected)
        fitting: list[list[Rows]] | None = None
        for number in range(9 if size < 64 else 3 if size < 4096 else 2):
            results = self._trial(entry, key, read, number)
            if isinstance(results, Mixed):
                return [results] * len(expected)
            whole, alone = results
            if len(whole) != len(expected):
                return [bad] * len(expected)
            here = [list(self._fits(i, shape, whole, alone)) for i, shape in enumerate(expected)]
            fitting = (
                here if fitting is None else [[p for p in a if p in b] for a, b in zip(fitting, here, strict=True)]
            )
        assert fitting is not None
        return [places[0] if places else bad for places in fitting]

    @staticmethod
    def _telling(results: list[Tensor]) -> bool:
        return all(not bool(r.isnan().double().mean() > 0.5) for r in results if r.is_floating_point() and r.numel())

    def _fits(self, index: int, shape: Shape, whole: list[Tensor], alone: list[list[Tensor]]) -> Iterator[Rows]:
        """The ways to divide a result by records in which each part is what the record gives alone."""
        grown = [(dim, size) for dim, size in enumerate(shape) if isinstance(size, Size)]
        if len(grown) != 1 or grown[0][1].fixed or tuple(whole[index].shape) != at(shape, MANY):
            return
        dim, size = grown[0]
        for before in (n for n in range(1, size.each + 1) if size.each % n == 0):
            rows = Rows(dim, before, size.each // before)
            parts = (
                (rows.take(whole[index], MANY, record), given[index])
                for record, given in zip(ALONE, alone, strict=True)
            )
            if all(part.shape == right.shape and _close(part, right) for part, right in parts):
                yield rows

    def _trial(
        self, entry: Entry, key: Any, read: list[Reference], number: int
    ) -> tuple[list[Tensor], list[list[Tensor]]] | Mixed:
        """The results for many records and for some of them alone, on random numbers that the function accepts."""
        chance = np.random.default_rng(number)  # numpy's: no mode of torch's reaches it
        error: Exception | None = None
        large = any(sample.numel() > LARGE for r in read if (sample := self.one.samples[r]).is_floating_point())
        scale = (1.0, 1e3, 1e-3)[number % 3]  # what is added before a division hides small numbers, or large ones
        constants = (True, False) if number == 1 and not large else (False,)
        for drawn, draw, most in itertools.product(constants, (_narrow,) if large else _DRAWS, (8, 2, 0)):
            values = {r: self._drawn(r, draw, most, chance, scale, constants=drawn) for r in read}
            try:
                whole = self._run(entry, key, MANY, values)
                if not self._telling(whole):
                    continue
                return whole, [self._run(entry, key, 1, self._alone(values, record)) for record in ALONE]
            except Exception as refused:  # a function may refuse numbers outside its domain: others may do
                error = refused
        reason = str(error).strip().partition("\n")[0] if error else "no numbers to judge it by"
        return Mixed(f"{name_of(entry.func)}: {reason}")

    def _drawn(
        self,
        reference: Reference,
        draw: Callable[..., Tensor],
        most: int,
        chance: np.random.Generator,
        scale: float,
        *,
        constants: bool,
    ) -> Tensor:
        """A value at random; whole numbers below `most`, or as they are at hand: not every index is valid."""
        sample, place = self.one.samples[reference], self._place(reference)
        if isinstance(place, Order):
            return torch.arange(MANY, device=sample.device)
        shape = list(sample.shape)
        if isinstance(place, Rows):
            shape[place.dim] = place.before * MANY * place.after
        elif not constants or not sample.is_floating_point():  # it is the same in every pass
            return sample.double() if sample.dtype == torch.float32 and draw is not _narrow else sample
        if sample.dtype == torch.bool:
            drawn = torch.from_numpy(np.asarray(chance.random(shape) < 0.5))
        elif sample.is_complex():
            drawn = torch.complex(draw(shape, sample.real, chance), draw(shape, sample.real, chance))
        elif sample.is_floating_point():
            drawn = draw(shape, sample, chance) * (1.0 if draw is _unit else scale)
        elif most or not sample.numel():
            drawn = torch.from_numpy(np.asarray(chance.integers(max(most, 1), size=shape))).to(sample.dtype)
        else:
            drawn = sample.flatten().cpu()[torch.from_numpy(np.asarray(chance.integers(sample.numel(), size=shape)))]
        return drawn.to(sample.device)

    def _alone(self, values: dict[Reference, Tensor], record: int) -> dict[Reference, Tensor]:
        def part(reference: Reference, value: Tensor) -> Tensor:
            place = self._place(reference)
            if isinstance(place, Order):
                return value[:1]
            return place.take(value, MANY, record) if isinstance(place, Rows) else value

        return {reference: part(reference, value) for reference, value in values.items()}

    def _run(self, entry: Entry, key: Any, batch: int, values: dict[Reference, Tensor]) -> list[Tensor]:
        """The results of one call, then what it changed."""
        from fedfdp.privacy.clipping.tape import Still

        values = {**values, **{reference: values[reference].clone() for reference in entry.changed}}
        names = sorted(entry.kwargs) if entry.kwargs else []
        args = [_rebuilt(a, k, batch, values) for a, k in zip(entry.args, key, strict=False)]
        given = key[len(entry.args)] if names else ()
        kwargs = {n: _rebuilt(entry.kwargs[n], k, batch, values) for n, (_, k) in zip(names, given, strict=True)}
        with torch.no_grad(), Still():
            result = entry.func(*args, **kwargs)
        if name_of(entry.func) in UNWRITTEN:
            result.zero_()  # as on the tape
        found = [result] if isinstance(result, Tensor) else list(result) if isinstance(result, (tuple, list)) else []
        return [t for t in found if isinstance(t, Tensor)] + [values[reference] for reference in entry.changed]


def _normal(shape: list[int], sample: Tensor, chance: np.random.Generator) -> Tensor:
    return torch.from_numpy(np.asarray(chance.standard_normal(shape)))


def _unit(shape: list[int], sample: Tensor, chance: np.random.Generator) -> Tensor:
    return torch.from_numpy(np.asarray(chance.random(shape)))


def _narrow(shape: list[int], sample: Tensor, chance: np.random.Generator) -> Tensor:
    return _normal(shape, sample, chance).to(sample.dtype)


_DRAWS = (_normal, _unit, _narrow)  # in double precision where that works: rounding hides nothing then


def _rebuilt(value: Any, pattern: Any, batch: int, values: dict[Reference, Tensor]) -> Any:
    """An argument with its sizes for this many records and these tensors."""
    if isinstance(value, Tensor):
        return values[pattern]
    if type(pattern) is Size:
        return pattern.at(batch)
    if type(value) is slice:
        ends = zip((value.start, value.stop, value.step), pattern[1:], strict=True)
        return slice(*[_rebuilt(end, own, batch, values) for end, own in ends])
    if isinstance(value, dict):
        return {
            n: _rebuilt(value[n], k, batch, values) for n, (_, k) in zip(sorted(value, key=str), pattern, strict=True)
        }
    if isinstance(value, (tuple, list)):
        parts = [_rebuilt(part, own, batch, values) for part, own in zip(value, pattern, strict=True)]
        return parts if isinstance(value, list) else tuple(parts)
    return value


def _memory(sample: Tensor) -> tuple[int, int]:
    """The memory that a tensor is a part of, from and to."""
    storage = sample.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()


def _counts(sample: Tensor) -> bool:
    return torch.equal(sample, torch.arange(len(sample), device=sample.device))


def _close(one: Tensor, other: Tensor, *, exact: bool = False) -> bool:
    if exact or not one.is_floating_point():
        return bool(((one == other) | ((one != one) & (other != other))).all())
    unit = 1e3 * torch.finfo(one.dtype).eps
    size = other.nan_to_num(0, 0, 0).abs().amax() if other.numel() else 0.0
    near = (one - other).abs() <= unit * (other.abs() + size)
    return bool((near | (one == other) | ((one != one) & (other != other))).all())


def _references(key: Any) -> Iterator[Reference]:
    if type(key) is Reference:
        yield key
    elif type(key) is tuple:
        for part in key:
            yield from _references(part)


def _grows(pattern: Any) -> bool:
    if type(pattern) is tuple:
        return any(map(_grows, pattern))
    return type(pattern) is Size
