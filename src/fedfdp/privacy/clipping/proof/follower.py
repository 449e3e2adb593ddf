"""Compares a forward pass with a proven one, call by call, and ends it where they differ.

Sizes may grow with the number of records as they did when the pass was proven. Numbers from outside (tensors that are
neither input, parameter nor buffer) must be the same.
"""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from fedfdp.privacy.clipping.proof.calls import (
    Arguments,
    ExpectedCall,
    Function,
    Key,
    Keywords,
    OtherPassError,
    Program,
    first_shares_memory,
    name_of,
    same_numbers,
)
from fedfdp.privacy.clipping.proof.watcher import OTHER, Own, Watcher


class Follower(Watcher):
    """Follows the program of a proven pass for this many records."""

    def __init__(
        self, own: Own, trained: Mapping[int, str], inputs: Iterable[Tensor], program: Program, batch: int
    ) -> None:
        self._ahead, self._constants = iter(program.at(batch)), program.outside
        self._coming = next(self._ahead, None)
        self.draws = program.draws
        super().__init__(own, trained, inputs)

    def entered(self, number: int, tensor: Tensor) -> None:
        if number >= len(self._constants):
            raise OtherPassError("another tensor from outside enters")
        if not same_numbers(tensor.detach(), self._constants[number]):
            raise OtherPassError("a tensor from outside holds other numbers than before")

    def simple(self, func: Function, run: Function, args: Arguments, kwargs: Keywords) -> object:
        call = self._coming
        # Whatever else comes, a question for a shape or a function of a class that is not known, is the tape's.
        if call is None or call.func is not func or not call.simple:
            return OTHER
        key = self.key(args, kwargs)
        if self.used:
            return OTHER
        self.expect(func, key)
        result = run(*args, **kwargs)
        if call.unchanged:
            self.unchanged(key, args, result)
        self.note(func, key, result, args, kwargs)
        return result

    def expect(self, func: Function, key: Key) -> ExpectedCall:
        call = self._coming
        if call is None:
            raise OtherPassError(f"{name_of(func)} is called beyond what was examined")
        if call.func != func or call.key != key:  # functions of the classes in KNOWN alone come here
            raise OtherPassError(f"{name_of(func)} is called otherwise than when it was examined")
        if call.graded != torch.is_grad_enabled():
            raise OtherPassError(f"{name_of(func)} has gradients where it had none, or the other way round")
        return call

    def note(self, func: Function, key: Key, result: object, args: Arguments, kwargs: Keywords) -> None:
        call = self._coming
        assert call is not None
        self._coming = next(self._ahead, None)
        for tensor, version, _ in self.given:
            if tensor._version != version:
                self.written()
                break
        if type(result) is Tensor:
            self.number(result)
            same = result.shape == call.shape
        else:
            same = tuple([tensor.shape for _, tensor in self.numbered(result)]) == call.shapes
        if not same:
            raise OtherPassError(f"{name_of(func)} gives other shapes than expected")
        if call.shared is not None and first_shares_memory(args, result) != call.shared:
            raise OtherPassError(f"{name_of(func)} gives a view where it gave a copy, or the other way round")

    def ended(self) -> None:
        """Raises if the proven pass goes on."""
        if self._coming is not None:
            raise OtherPassError("the pass ends earlier than when it was examined")
