"""Watches the calls of a forward pass: which value each tensor is, and whether every write to it was seen.

Two passes are the same if they make the same calls in the same order, on the same values, with the same arguments.
`Tracer` writes a pass down, `Follower` compares a pass with a proven one.
"""

import threading
from collections.abc import Iterable, Mapping
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn

from fedfdp.privacy.clipping.proof.calls import (
    Arguments,
    ExpectedCall,
    Function,
    Key,
    Keywords,
    UnsupportedError,
    tensors_in,
)
from fedfdp.privacy.clipping.proof.places import Reference

Own = Mapping[int, tuple[str, Tensor]]  # the model's parameters and buffers, with their names, by id

_PLAIN = frozenset({int, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format})
_TENSORS = frozenset({Tensor, nn.Parameter})  # the code of any other class would run where nothing is seen
_MARK = "_fedfdp_value"  # the attribute of a tensor that says which value it is
OTHER = object()  # what `Watcher.simple` gives for a call that it did not make
_VALUES: list[Reference] = []  # numbered from 0; kept because to make one takes as long as to look at a tensor
_GROWS = threading.Lock()  # two passes at once must not give the same number twice


class Watcher:
    """What the tracer and the follower share. `inputs` are the records and their targets: the first values."""

    draws = True  # whether the pass may draw random numbers

    def __init__(self, own: Own, trained: Mapping[int, str], inputs: Iterable[Tensor]) -> None:
        self._own, self.trained = own, trained
        self._token = object()  # marks of another pass say nothing in this one
        self._values = 0
        self._outside: dict[int, tuple[Reference, Tensor]] = {}  # the tensor is held so that its id stays its own
        self._versions = {number: tensor._version for number, (_, tensor) in own.items()}
        self._written: dict[int, int] = {}  # by memory: the version that the calls seen so far have left
        self._copied: dict[
            int, Tensor
        ] = {}  # by memory: values that lie in several places, held so that these stay theirs
        self.used: list[str] = []  # trained parameters among the arguments of the last call
        self.given: list[tuple[Tensor, int, Reference]] = []  # its tensors: their versions before it, and which values
        for tensor in inputs:
            self.mark(tensor)

    def mark(self, tensor: Tensor) -> Reference:
        """Gives the next number to a value that is new."""
        reference = _VALUES[self._values] if self._values < len(_VALUES) else self.coming
        self._values += 1
        self.same(tensor, reference)
        return reference

    @property
    def coming(self) -> Reference:
        """The number that the next new value will get."""
        if len(_VALUES) <= self._values:
            with _GROWS:
                while len(_VALUES) <= self._values:
                    _VALUES.append(Reference("value", len(_VALUES)))
        return _VALUES[self._values]

    def same(self, tensor: Tensor, reference: Reference) -> None:
        """Marks the tensor as this value. The mark has the tensor's id: some classes hand their marks on to others."""
        try:
            tensor.__dict__[_MARK] = (self._token, reference, id(tensor), tensor._version)
        except RuntimeError:
            raise _uncounted() from None

    def unchanged(self, key: Key, args: Arguments, result: object) -> None:
        """Marks the result of a function that gives the same value, unless its numbers are of another type.

        Of a copy, neither may be written to: one would pass for the other.
        """
        tensor = args[0] if args else None
        if result is tensor or not isinstance(tensor, Tensor) or not isinstance(result, Tensor):
            return
        if tensor.dtype != result.dtype or tensor.device != result.device:
            return
        assert isinstance(key[0], Reference)
        self.same(result, key[0])
        places = {one.untyped_storage().data_ptr(): one.detach() for one in (tensor, result)}
        if len(places) > 1:
            self._copied |= places

    def known(self, tensor: Tensor) -> Reference | None:
        """Which value the tensor is, if it was marked in this pass."""
        mark: tuple[object, Reference, int, int] | None = tensor.__dict__.get(_MARK)
        if mark is None or mark[0] is not self._token or mark[2] != id(tensor):
            return None
        if mark[3] != tensor._version:
            self._require_seen_write(tensor)
            self.same(tensor, mark[1])
        return mark[1]

    def reference(self, tensor: Tensor) -> Reference:
        """Which value the tensor is. One that is neither marked nor the model's own comes from outside."""
        known = self.known(tensor)
        if known is not None:
            return known
        number = id(tensor)
        if number not in self._own and number not in self._outside:
            if tensor.grad_fn is not None:  # it may be 0 in every pass, and its gradient all records
                raise UnsupportedError("a tensor from outside has a gradient")
            try:
                self._versions[number] = tensor._version
            except RuntimeError:
                raise _uncounted() from None
            self._outside[number] = (Reference("outside", len(self._outside)), tensor)
            self.entered(len(self._outside) - 1, tensor)
        if tensor._version != self._versions[number]:
            self._require_seen_write(tensor)
            self._versions[number] = tensor._version
        return _own(self._own[number][0]) if number in self._own else self._outside[number][0]

    def _require_seen_write(self, tensor: Tensor) -> None:
        """Raises unless the last write to the tensor's memory was by a call that was seen."""
        if self._written.get(tensor.untyped_storage().data_ptr()) != tensor._version:
            raise UnsupportedError("a tensor is written to where it is not seen")

    def entered(self, number: int, tensor: Tensor) -> None:
        """A tensor came from outside."""

    def key(self, args: Arguments, kwargs: Keywords) -> Key:
        """The arguments of a call as something that can be compared."""
        self.used, self.given = [], []
        found: list[object] = []
        token = self._token
        for value in args:
            if type(value) is Tensor:
                # What `_comparable` finds for a value that was not written to since it was marked, without its calls.
                mark = value.__dict__.get(_MARK)
                if mark is not None and mark[0] is token and mark[2] == id(value) and mark[3] == value._version:
                    if id(value) in self.trained:
                        self.used.append(self.trained[id(value)])
                    self.given.append((value, mark[3], mark[1]))
                    found.append(mark[1])
                    continue
            found.append(value if type(value) in _PLAIN else self._comparable(value))
        if kwargs:
            named = [(name, kwargs[name]) for name in sorted(kwargs)]
            found.append(tuple([(name, v if type(v) in _PLAIN else self._comparable(v)) for name, v in named]))
        return tuple(found)

    def _comparable(self, value: object) -> object:
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is float:
            return ("float", value.hex())  # type: ignore[attr-defined]  # 0.0 is not -0.0, and 3.0 not 3
        if kind is bool:
            return ("yes",) if value else ("no",)  # True is also 1, and x[True] is not x[1]
        if isinstance(value, Tensor):
            if type(value) not in _TENSORS:
                raise UnsupportedError(f"a tensor of the class {type(value).__name__} is not known")
            if id(value) in self.trained:
                self.used.append(self.trained[id(value)])
            reference = self.reference(value)
            self.given.append((value, value._version, reference))
            return reference
        if kind is complex:
            return ("complex", repr(value))
        if isinstance(value, (tuple, list)):
            return tuple([self._comparable(part) for part in value])
        if isinstance(value, slice):
            ends = (value.start, value.stop, value.step)
            return ("slice", *[self._comparable(end) for end in ends])
        if isinstance(value, dict):
            return tuple([(name, self._comparable(value[name])) for name in sorted(value, key=str)])
        if isinstance(value, np.generic):
            return self._comparable(value.item())
        if value is Ellipsis:
            return "..."
        if isinstance(value, torch.Generator):
            raise UnsupportedError("it draws from a generator of its own, by the places of records in the batch")
        if isinstance(value, np.ndarray):
            return ("array", value.shape, value.dtype.str, value.tobytes())
        raise UnsupportedError(f"an argument of type {kind.__name__} is not known")

    def written(self) -> list[Tensor]:
        """The tensors that the last call has written to; their new versions are noted as accounted for."""
        found = []
        for tensor, version, _ in self.given:
            if tensor._version != version:
                memory = tensor.untyped_storage().data_ptr()
                if memory in self._copied:
                    raise UnsupportedError("a tensor is written to of which there is a copy")
                self._written[memory] = tensor._version
                found.append(tensor)
        return found

    def numbered(self, result: object) -> list[tuple[Reference, Tensor]]:
        """The tensors of a result. Those that are no argument get a number."""
        return [(self.number(tensor), tensor) for tensor in tensors_in(result)]

    def number(self, tensor: Tensor) -> Reference:
        """Which value a result is; a new one, unless it is an argument or comes from outside."""
        if _MARK in tensor.__dict__ and (reference := self.known(tensor)) is not None:
            return reference
        mine = id(tensor) in self._own or id(tensor) in self._outside
        return self.reference(tensor) if mine else self.mark(tensor)

    def simple(self, func: Function, run: Function, args: Arguments, kwargs: Keywords) -> object:
        """The result of a call that is the expected one, compared in whole, if there is nothing else to do.

        OTHER where there is. The call is made as `run`.
        """
        return OTHER

    def expect(self, func: Function, key: Key) -> ExpectedCall | None:
        """Called before a call is made: the one that should come. Raises where it is another."""
        return None

    def note(self, func: Function, key: Key, result: object, args: Arguments, kwargs: Keywords) -> None:
        """Called after a call was made."""
        raise NotImplementedError


@lru_cache(2**16)  # to make one takes as long as to look at a tensor
def _own(name: str) -> Reference:
    return Reference("own", name)


def _uncounted() -> UnsupportedError:
    """Torch does not count how often a tensor of inference mode was written to."""
    return UnsupportedError("writing to tensors of inference mode is not seen")
