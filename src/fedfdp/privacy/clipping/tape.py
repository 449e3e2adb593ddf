"""Sees every use of a trained parameter in a forward pass, and keeps the calls whose gradients a rule can work out.

It sees functions, not modules, so tied weights, functional calls and attention's packed projection are seen too. Never
changes the model: the functions get copies of its parameters that share their memory. Any other use of a parameter ends
the pass.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge
from torch.overrides import TorchFunctionMode

from fedfdp.privacy.clipping.layers.in_steps import IN_STEPS
from fedfdp.privacy.clipping.layers.rule import Call, Rule
from fedfdp.privacy.clipping.proof.calls import Function, Reference, UnsupportedError, name_of, tensors_in
from fedfdp.privacy.clipping.proof.functions import FOREIGN, METADATA, UNCHANGED, UNWRITTEN
from fedfdp.privacy.clipping.proof.watcher import Watcher

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


class Tape(TorchFunctionMode):
    """Hands every call to `watch`, and keeps those of the rules' functions on trained parameters in `calls`."""

    def __init__(self, rules: Mapping[Any, Rule[Any]], watch: Watcher, *, channels_last: bool) -> None:
        super().__init__()
        self._channels_last, self._rules, self._watch = channels_last, rules, watch
        self.calls: list[Call[Any]] = []
        self.ended: UnsupportedError | None = None  # kept, as a model may catch what is raised within it

    def __torch_function__(
        self, func: Function, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        try:
            return self._call(func, args, kwargs or {})
        except UnsupportedError as error:
            self.ended = self.ended or error
            raise

    def _call(self, func: Function, args: Args, kwargs: Kwargs) -> object:
        name = name_of(func)
        if name in METADATA:
            return func(*args, **kwargs)
        if func in IN_STEPS:
            with self:
                return IN_STEPS[func](*args, **kwargs)
        watch = self._watch
        key = watch.key(args, kwargs)
        foreign = name in FOREIGN and not watch.given
        if not foreign:
            watch.expect(func, key)
        if watch.used and torch.is_grad_enabled():  # else it is a part that the model itself keeps out of training
            result = self._use(func, watch.used, args, kwargs)
        elif func is Tensor.view and self._channels_last:
            result = _viewed(*args, **kwargs)
        else:
            result = func(*args, **kwargs)
        if name in UNWRITTEN and isinstance(result, Tensor):
            result.zero_()  # whatever was in that memory before, other records included
        if name in UNCHANGED and args and isinstance(result, Tensor) and _alike(args[0], result):
            assert isinstance(key[0], Reference)
            watch.same(result, key[0])
        if not foreign:
            watch.note(func, key, result, args, kwargs)
        return result

    def _use(self, func: Function, used: list[str], args: Args, kwargs: Kwargs) -> object:
        """A call on trained parameters: by a rule, or without a tensor in its result (a shape, a device, a dtype)."""
        if func in self._rules:
            return self._keep(self._rules[func], func, used, args, kwargs)
        result = func(*args, **kwargs)
        if any(True for _ in tensors_in(result)):
            raise UnsupportedError(f"{used[0]} is used by {name_of(func)}")
        return result

    def _keep(self, rule: Rule[Any], func: Any, used: list[str], args: Args, kwargs: Kwargs) -> Tensor:
        input, weight, bias, options = rule.bind(*args, **kwargs)
        names = [None if t is None else self._watch.trained.get(id(t)) for t in (weight, bias)]
        if sorted(used) != sorted(name for name in names if name is not None):
            raise UnsupportedError(f"{used[0]} is used as data")
        # Leaves of their own: the output gets its place in the graph, and a backward pass that the model itself makes
        # does not reach the model's parameters.
        trained = [t for t, name in zip((weight, bias), names, strict=True) if t is not None and name]
        leaves = {id(t): t.detach().requires_grad_() for t in trained}
        given = [leaves.get(id(a), a) for a in args]
        output = rule.run(func, self._channels_last, *given, **{key: leaves.get(id(a), a) for key, a in kwargs.items()})
        self.calls.append(
            Call(
                rule=rule,
                weight=names[0],
                bias=names[1],
                input=input.detach(),
                options=options,
                rows=math.prod(input.shape[: rule.leading(input, options)]),
                outputs=output.numel(),
                version=input._version,
                source=self._watch.reference(input),
                edge=get_gradient_edge(output),
            )
        )
        return output


def _viewed(tensor: Tensor, *shape: Any, **kwargs: Any) -> Tensor:
    """A view, or a copy where the model expects an order of numbers that its images do not have here."""
    try:
        return tensor.view(*shape, **kwargs)
    except RuntimeError:
        return tensor.contiguous().view(*shape, **kwargs)


def _alike(before: object, after: Tensor) -> bool:
    return isinstance(before, Tensor) and (before.dtype, before.device) == (after.dtype, after.device)
