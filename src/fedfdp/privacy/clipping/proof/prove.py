"""Proves of a traced pass that no call lets records meet, and finds where each value keeps its records.

Each call is judged by itself. A function that a trial on random numbers can judge is tried (trial.py); the results of
any other are taken to mix the records. Weights and records at hand decide nothing.
"""

from fedfdp.privacy.clipping.proof.calls import (
    ExpectedCall,
    Key,
    Program,
    Shape,
    Size,
    TracedCall,
    UnsupportedError,
    name_of,
    references,
    same_numbers,
)
from fedfdp.privacy.clipping.proof.conditions import shaped_by_numbers
from fedfdp.privacy.clipping.proof.functions import (
    ALIKE,
    CREATED,
    ELEMENTWISE,
    PICKED,
    SHAPE_ONLY,
    SIZED,
    UNREPEATABLE,
    condition,
    draws,
    kind_of,
)
from fedfdp.privacy.clipping.proof.keys import adds_dimensions, counts, grows, renamed
from fedfdp.privacy.clipping.proof.places import Meeting, Mixed, Order, Place, Reference, Rows
from fedfdp.privacy.clipping.proof.steps import step_of
from fedfdp.privacy.clipping.proof.tracer import Tracer
from fedfdp.privacy.clipping.proof.trial import Trial


def prove(one: Tracer, other: Tracer, sizes: tuple[int, int], inputs: int) -> tuple[Program, dict[Reference, Place]]:
    """The pass as a program for any number of records, and where each of its values keeps them.

    `one` and `other` are the same pass traced with two numbers of records. The first `inputs` values are the records'.
    """
    if len(one.calls) != len(other.calls):
        raise UnsupportedError("the model makes other calls for more records")
    if len(one.outside) != len(other.outside) or not all(map(same_numbers, one.outside, other.outside)):
        raise UnsupportedError("numbers from outside change from pass to pass, or with the number of records")
    proof = _Proof(one, other, sizes)
    for number in range(inputs):
        proof.places[Reference("value", number)] = Rows(0, 1, 1)
        proof.touched.add(Reference("value", number))
    calls = [proof.judged(first, second) for first, second in zip(one.calls, other.calls, strict=True)]
    overwrites = any(_overlap(one.memory(Reference("value", number)), proof.writes) for number in range(inputs))
    drawn = any(draws(name_of(call.func), call.args, call.kwargs) for call in one.calls)
    return Program(calls, one.outside, drawn, overwrites), proof.places


class _Proof:
    def __init__(self, one: Tracer, other: Tracer, sizes: tuple[int, int]) -> None:
        self.one, self.other, self.sizes = one, other, sizes
        self.writes = {span for call in one.calls for changed in call.changed for span in one.memory(changed)}
        self.places: dict[Reference, Place] = {}
        self.touched: set[Reference] = set()  # values with numbers of records; others at most grow with their count
        self._tried: dict[object, list[Place]] = {}

    def judged(self, first: TracedCall, second: TracedCall) -> ExpectedCall:
        """One call of both passes as it is expected from now on, once its results have their places."""
        name = name_of(first.func)
        if (first.func, first.made, first.changed) != (second.func, second.made, second.changed):
            raise UnsupportedError(f"{name}: other calls are made for more records")
        if (shared := first.shared if self._written(first) else None) is not None and second.shared != shared:
            raise UnsupportedError(f"{name}: a view for some numbers of records, a copy for others")
        key = self._merged_all(first.key, second.key, name)
        if len(first.shapes) != len(second.shapes):
            raise _varies(name)
        shapes = tuple([self._merged_shape(a, b, name) for a, b in zip(first.shapes, second.shapes, strict=True)])
        if first.graded != second.graded:
            raise _varies(name)
        self._place_results(first, key, shapes, name)
        meeting = self._meeting(first, key)
        free = meeting is None and self._weights(first) and not set(first.made) & set(references(first.key))
        step = step_of(first) if free else ""
        kind = kind_of(first.func)
        simple = kind.simple and meeting is None and not step
        return ExpectedCall(first.func, key, shapes, shared, first.graded, meeting, step, simple, kind.unchanged)

    def _weights(self, call: TracedCall) -> frozenset[Reference]:
        """The values among a call's arguments that are made of trained parameters alone."""
        if not call.graded:
            return frozenset()
        return frozenset(r for r in references(call.key) if self.places.get(r) is None and self.one.is_trained(r))

    def _meeting(self, call: TracedCall, key: Key) -> Meeting | None:
        """How parameters meet the records in a call; None where they do not."""
        results = (*call.made, *call.changed)
        if not any(self.places.get(r) is not None and r in self.one.trained_by for r in results):
            return None
        if not (weights := self._weights(call)):
            return None
        read = {reference: self.places.get(reference) for reference in references(call.key)}
        return Meeting(weights, read, tuple(self.places.get(r) for r in results), key)

    def _written(self, call: TracedCall) -> bool:
        """Whether anything writes to the call's first argument or result: then it matters if they share memory."""
        first = next(references(call.key), None)
        values = [r for r in (first, *call.made) if r in self.one.samples]
        return any(_overlap(self.one.memory(value), self.writes) for value in values)

    def _merged_all(self, ones: Key, others: Key, name: str) -> Key:
        """The same key in both passes, with a Size where a whole number differs."""
        if len(ones) != len(others):
            raise _varies(name)
        return tuple([self._merged(a, b, name) for a, b in zip(ones, others, strict=True)])

    def _merged(self, one: object, other: object, name: str) -> object:
        if type(one) is tuple and type(other) is tuple:
            return self._merged_all(one, other, name)
        if one is other or one == other:
            return one
        if type(one) is int and type(other) is int:
            return self._merged_size(one, other, name)
        raise _varies(name)

    def _merged_size(self, one: int, other: int, name: str) -> int | Size:
        if one == other:
            return one
        each, rest = divmod(one - other, self.sizes[0] - self.sizes[1])
        if rest:
            raise _varies(name)
        return Size(one - each * self.sizes[0], each)

    def _merged_shape(self, one: tuple[int, ...], other: tuple[int, ...], name: str) -> Shape:
        if len(one) != len(other):
            raise _varies(name)
        return tuple([self._merged_size(a, b, name) for a, b in zip(one, other, strict=True)])

    def _place_results(self, call: TracedCall, key: Key, shapes: tuple[Shape, ...], name: str) -> None:
        """Says of every result where it keeps its records; raises where records could leave the pass or its values."""
        read = list(dict.fromkeys(references(call.key)))
        with_records = [reference for reference in read if self.places.get(reference) is not None]
        if not call.made and not call.changed:
            if any(reference in self.touched for reference in read):
                raise UnsupportedError(
                    f"{name}: a number that depends on the records is used outside the model's tensors"
                )
            return
        if all(reference in read for reference in call.made) and not call.changed:
            return  # it gives an argument as it is
        places = self._find(call, key, shapes, name, read, with_records)
        drawn = name.removesuffix("_") in UNREPEATABLE and any(place is not None for place in places)
        if drawn or (name not in SHAPE_ONLY and any(reference in self.touched for reference in read)):
            self.touched.update(call.made)
            for reference in call.changed:
                self._touch(reference)
        for reference, place in zip((*call.made, *call.changed), places, strict=True):
            if reference not in call.changed:
                self.places[reference] = place
            elif isinstance(place, Mixed) or place != self.places.get(reference) or self._meets(reference, place):
                # Other values may share its memory: where they keep their records must not change.
                raise UnsupportedError(f"{name}: records are written where none, or others, are kept")

    def _touch(self, reference: Reference) -> None:
        """Numbers of records were written to this value: whatever shares its memory holds them too."""
        memory = self.one.memory(reference)
        self.touched.update(other for other in self.one.samples if _overlap(memory, self.one.memory(other)))

    def _meets(self, reference: Reference, place: Place) -> bool:
        """Whether records are written into memory that also is a value without records, or the other way round."""
        memory = self.one.memory(reference)
        for other in self.one.samples:
            if other.kind == "value" and other not in self.places:
                continue  # it is made later, from values that are judged then
            if (self.places.get(other) is None) != (place is None) and _overlap(memory, self.one.memory(other)):
                return True
        return False

    def _find(
        self,
        call: TracedCall,
        key: Key,
        shapes: tuple[Shape, ...],
        name: str,
        read: list[Reference],
        with_records: list[Reference],
    ) -> list[Place]:
        """The places of the call's results, then of the arguments that it changes."""
        expected = (*shapes, *[self._shape_of(reference) for reference in call.changed])
        if name in SHAPE_ONLY:
            with_records = [reference for reference in with_records if isinstance(self.places.get(reference), Mixed)]
        if not with_records and not grows(key) and not grows(expected):
            return [None] * len(expected)
        self._require_known_shape(call, key, name, read)
        if mixed := next((p for r in with_records if isinstance(p := self.places.get(r), Mixed)), None):
            return [mixed] * len(expected)
        if name == "arange" and expected == ((Size(0, 1),),) and counts(self.one.samples[call.made[0]]):
            return [Order()]
        if (order := self._still_order(call, key, expected, name, with_records)) is not None:
            return [order]
        if any(isinstance(self.places.get(r), Order) for r in with_records) and not self._picks(key, name):
            return [Mixed(f"{name}: the places of records in the batch are used")] * len(expected)
        if (mixed := self._counted(key, name, read)) is not None:
            return [mixed] * len(expected)
        met = condition(name)
        if met is None or not met(call, [place for r in read if isinstance(place := self.places.get(r), Rows)]):
            return [Mixed(f"{name}: not known to keep records apart")] * len(expected)
        tried = Trial(call, key, {r: (self.one.samples[r], self.places.get(r)) for r in read})
        if not grows(expected) and not any(reference in self.touched for reference in read) and not call.changed:
            # No number of a record is read: what the records share, such as a line of a table made for all of them.
            shared = name in PICKED and not grows(key) and tried.is_fixed()
            place = None if shared else Mixed(f"{name}: depends on how many records there are")
            return [place] * len(expected)
        ends = self._aligned(read) if name in ELEMENTWISE else set()
        if len(ends) > 1:
            return [Mixed(f"{name}: its arguments keep records in different places")] * len(expected)
        sure = name not in SHAPE_ONLY and any(reference in self.touched for reference in read)
        same = self._same_trial(call, key, expected, read)
        if same is None:
            return tried.places(expected, *ends, sure=sure)
        known = (same, frozenset(ends), sure)
        if known not in self._tried:
            self._tried[known] = tried.places(expected, *ends, sure=sure)
        return self._tried[known]

    def _counted(self, key: Key, name: str, read: list[Reference]) -> Mixed | None:
        """Why a call may tell a record its place in the batch, or how many records there are; None if it cannot.

        Constants stay as they are in a trial of a few records: of a longer batch it cannot say what they hold.
        """
        if not grows(key):
            return None
        names = {name, name.removesuffix("_")}
        if not names & SIZED:
            return Mixed(f"{name}: computes with the number of records")
        constants = not read or any(self.places.get(reference) is None for reference in read)
        if names & (ALIKE | UNREPEATABLE) or not constants:
            return None
        return Mixed(f"{name}: what it takes of a constant depends on the number of records")

    def _aligned(self, read: list[Reference]) -> set[Rows]:
        """Where arguments with numbers of records keep these, with dimensions counted from the end, as broadcast."""
        rows = {r: place for r in read if isinstance(place := self.places.get(r), Rows)}
        ends = {r: place._replace(dim=place.dim - self.one.samples[r].dim()) for r, place in rows.items()}
        return {place for r, place in ends.items() if r in self.touched} or set([*ends.values()][:1])

    def _require_known_shape(self, call: TracedCall, key: Key, name: str, read: list[Reference]) -> None:
        """Raises where numbers of records may decide how large a result is: the model sees that, and may act on it."""
        if not any(reference in self.touched for reference in read):
            return
        if condition(name) is None or (name in CREATED and name not in SHAPE_ONLY):
            raise UnsupportedError(f"{name}: not known to keep records apart")
        later = [self.one.samples[r] for r in references(key[1:]) if r in self.touched]
        if shaped_by_numbers(name, call, [] if name in ELEMENTWISE else later):
            raise UnsupportedError(f"{name}: its result is as large as numbers of records say")

    def _same_trial(self, call: TracedCall, key: Key, expected: tuple[Shape, ...], read: list[Reference]) -> object:
        """What a trial of the call depends on; None where that includes numbers of a constant."""
        samples = [(self.places.get(r), self.one.samples[r]) for r in read]
        if any(place is None or not sample.is_floating_point() for place, sample in samples):
            return None
        kinds = tuple((place, sample.dtype, tuple(sample.shape)) for place, sample in samples)
        number = {reference: i for i, reference in enumerate(read)}
        changed = tuple(number[reference] for reference in call.changed)
        return call.func, renamed(key, number), expected, changed, kinds

    def _still_order(
        self, call: TracedCall, key: Key, expected: tuple[Shape, ...], name: str, with_records: list[Reference]
    ) -> Order | None:
        """The index vector with dimensions of size 1 added behind; None where a call does something else."""
        if name not in ("__getitem__", "unsqueeze", "view", "reshape") or len(expected) != 1 or len(with_records) != 1:
            return None
        if not isinstance(self.places.get(with_records[0]), Order) or key[0] != with_records[0] or call.changed:
            return None
        more, sample = len(expected[0]) - 1, self.one.samples[call.made[0]]
        if name == "__getitem__" and not adds_dimensions(call.args[1]):
            return None
        grown = expected[0] == (Size(0, 1), *[1] * more)
        return Order(more) if grown and counts(sample.flatten()) else None

    def _shape_of(self, reference: Reference) -> Shape:
        one, other = (tuple(traced.samples[reference].shape) for traced in (self.one, self.other))
        return self._merged_shape(one, other, "a shape")

    def _picks(self, key: Key, name: str) -> bool:
        """Whether a call is x[arange(B), …] on a value whose first dimension is the records."""
        if name != "__getitem__" or not isinstance(key[0], Reference) or self.places.get(key[0]) != Rows(0, 1, 1):
            return False
        index = key[1]
        if type(index) is not tuple or not index:
            return False
        return [r for r in references(index) if isinstance(self.places.get(r), Order)] == [index[0]]


def _varies(name: str) -> UnsupportedError:
    return UnsupportedError(f"{name}: an argument depends on the number of records, or on chance")


def _overlap(ones: set[tuple[int, int]], others: set[tuple[int, int]]) -> bool:
    return any(start < last and first < end for start, end in ones for first, last in others)
