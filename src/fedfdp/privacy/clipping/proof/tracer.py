"""Writes a forward pass down, with a sample of every value, so that it can be proven."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from fedfdp.privacy.clipping.proof.calls import (
    Arguments,
    Function,
    Key,
    Keywords,
    TracedCall,
    UnsupportedError,
    first_shares_memory,
    name_of,
)
from fedfdp.privacy.clipping.proof.places import Reference
from fedfdp.privacy.clipping.proof.watcher import Own, Watcher


class Tracer(Watcher):
    """The calls of a pass, the values in them, and the numbers that came from outside."""

    def __init__(self, own: Own, trained: Mapping[int, str], inputs: Iterable[Tensor]) -> None:
        self.calls: list[TracedCall] = []
        self.samples: dict[Reference, Tensor] = {}
        self._kept: dict[Reference, dict[int, Tensor]] = {}  # every tensor of a value that has memory of its own
        self.outside: list[Tensor] = []
        self.trained_by: set[Reference] = set()  # values whose gradient reaches a parameter
        self._with_gradients = True
        self._parameters = {own[number][0] for number in trained}
        super().__init__(own, trained, inputs)

    def mark(self, tensor: Tensor) -> Reference:
        reference = super().mark(tensor)
        self.samples[reference] = tensor.detach()
        self._graded(reference, tensor)
        return reference

    def same(self, tensor: Tensor, reference: Reference) -> None:
        super().same(tensor, reference)
        self._keep(tensor, reference)

    def _keep(self, tensor: Tensor, reference: Reference) -> None:
        self._kept.setdefault(reference, {})[tensor.untyped_storage().data_ptr()] = tensor.detach()

    def memory(self, reference: Reference) -> set[tuple[int, int]]:
        """The memory that a value is a part of, from and to: a copy of it counts as the same value, and has its own."""
        storages = [tensor.untyped_storage() for tensor in self._kept[reference].values()]
        return {(storage.data_ptr(), storage.data_ptr() + storage.nbytes()) for storage in storages}

    def is_trained(self, reference: Reference) -> bool:
        """Whether the value is a trained parameter, or was made of one with a gradient."""
        return reference in self.trained_by or (reference.kind == "own" and reference.name in self._parameters)

    def _graded(self, reference: Reference, tensor: Tensor) -> None:
        if tensor.requires_grad:
            self.trained_by.add(reference)

    def reference(self, tensor: Tensor) -> Reference:
        reference = super().reference(tensor)
        if reference not in self.samples:
            self.samples[reference] = tensor.detach()
            self._keep(tensor, reference)
        return reference

    def entered(self, number: int, tensor: Tensor) -> None:
        self.outside.append(tensor.detach().clone())

    def expect(self, func: Function, key: Key) -> None:
        self._with_gradients = torch.is_grad_enabled()

    def note(self, func: Function, key: Key, result: object, args: Arguments, kwargs: Keywords) -> None:
        written = self.written()
        if _writes(name_of(func)):  # also where the version does not show it, as with set_
            written += [tensor for tensor in (*args[:1], kwargs.get("out")) if isinstance(tensor, Tensor)]
        changed = tuple(dict.fromkeys(self.reference(tensor) for tensor in written))
        for tensor in written:
            self._graded(self.reference(tensor), tensor)
        found = self.numbered(result)
        if not found and not _is_plain(result, func) and any(r.kind == "value" for _, _, r in self.given):
            raise UnsupportedError(f"{name_of(func)}: memory of the pass is used outside of torch")
        shapes = tuple([tuple(tensor.shape) for _, tensor in found])
        made = tuple([reference for reference, _ in found])
        shared = first_shares_memory(args, result)
        self.calls.append(TracedCall(func, key, made, shapes, shared, args, kwargs, changed, self._with_gradients))


def _is_plain(result: object, func: Function) -> bool:
    """Whether a result without tensors is numbers or text of its own, rather than a way into the tensor's memory."""
    if isinstance(result, (tuple, list)):
        return all(_is_plain(part, func) for part in result)
    return isinstance(result, (int, float, complex, str, type(None))) and name_of(func) != "data_ptr"


def _writes(name: str) -> bool:
    """Whether a function changes its first argument, going by its name."""
    if name.startswith("__"):
        return name == "__setitem__" or (name.startswith("__i") and name not in ("__index__", "__int__", "__invert__"))
    return name.endswith(("_", "=")) and name not in ("requires_grad_", "requires_grad=")
