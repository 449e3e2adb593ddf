"""Sees every use of a trainable parameter in a forward pass and notes the calls whose gradients a rule can work out.

It watches functions, not modules, so tied weights, functional calls and attention's packed projection are seen too.
Never changes the model: the watched functions get copies of its parameters that share their memory, and an unknown use
ends the pass.
"""

import math
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from fedfdp.privacy.clipping.contributions import Contribution
from fedfdp.privacy.clipping.known import FOREIGN, METADATA, UNCHANGED, UNWRITTEN
from fedfdp.privacy.clipping.watch import Follower, Recorder, Reference, UnsupportedError, name_of, tensors_in


class Call(NamedTuple):
    """One call of a known function: the parameters it used, on what, and where its output's gradient arrives."""

    rule: "Rule"
    weight: str | None
    bias: str | None
    input: Tensor
    options: Any
    rows: int  # how many independent rows the input holds, over all records
    outputs: int  # how many numbers the output holds
    version: int
    source: Reference  # which value of the pass the input is
    edge: GradientEdge


class Rule:
    """How one function's per-sample parameter gradients follow from its input and its output's gradient."""

    functions: tuple[Callable[..., Tensor], ...]

    def bind(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None, Tensor | None, Any]:
        """(input, weight, bias, options) of a call; its signature is the function's."""
        raise UnsupportedError

    def run(self, func: Any, images_last: bool, *args: Any, **kwargs: Any) -> Tensor:
        """Call the function, with images in the order the tape asks for."""
        output: Tensor = func(*args, **kwargs)
        return output

    def leading(self, input: Tensor, options: Any) -> int:
        """How many of the input's first dimensions its rows run over."""
        raise UnsupportedError

    def per_sample(self, call: Call, grad: Tensor, batch: int, before: int) -> dict[str, Tensor]:
        """The gradients of `call` by parameter name, (B, *shape), rows laid out as (before, batch, after)."""
        raise UnsupportedError

    def contributions(self, call: Call, grad: Tensor, batch: int, before: int) -> list[Contribution]:
        """The same in the cheapest form, for parameters that no other call uses."""
        raise UnsupportedError


# Attention is one function to a TorchFunctionMode. Re-run with `has_torch_function` patched to False, each of its steps
# is a call of its own.
_steps_of_attention = types.FunctionType(
    functional.multi_head_attention_forward.__code__,
    {**vars(functional), "has_torch_function": lambda tensors: False},
    argdefs=functional.multi_head_attention_forward.__defaults__,
)
_DROPOUTS = {
    functional.dropout,
    functional.dropout1d,
    functional.dropout2d,
    functional.dropout3d,
    functional.alpha_dropout,
    functional.feature_alpha_dropout,
}


_DRAWS = {
    *(torch.rand, torch.randn, torch.rand_like, torch.randn_like, torch.normal, torch.bernoulli),
    *(Tensor.bernoulli, Tensor.bernoulli_, Tensor.normal_, Tensor.uniform_, Tensor.exponential_),
}


def _viewed(tensor: Tensor, *shape: Any, **kwargs: Any) -> Tensor:
    """A view, or a copy where the model expects an order of numbers that its images do not have here."""
    try:
        return tensor.view(*shape, **kwargs)
    except RuntimeError:
        return tensor.contiguous().view(*shape, **kwargs)


def _kept(func: Any, args: Any, kwargs: Any) -> Tensor:
    """What dropout is given; as a tensor of its own where dropout makes one."""
    given: Tensor = args[0]
    before, version = given.clone(), given._version
    if id(func(*args, **kwargs)) != id(given):
        return before
    if given._version != version:  # in place
        given.copy_(before)
    return given


class Still(TorchFunctionMode):
    """Dropout and drawn noise switched off without touching the model: for comparing passes with each other."""

    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is functional.multi_head_attention_forward:
            with self:
                return _steps_of_attention(*args, **kwargs)
        if func in _DROPOUTS:
            return _kept(func, args, kwargs)
        if func is functional.scaled_dot_product_attention:
            names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
            return func(**{**dict(zip(names, args, strict=False)), **kwargs, "dropout_p": 0.0})
        result = func(*args, **kwargs)
        return result.fill_(0.5) if func in _DRAWS and result.is_floating_point() else result


class Tape(TorchFunctionMode):
    """Hands every call to `watch`, notes those of known functions on trained parameters, and ends the pass at any other
    use of these.
    """

    def __init__(self, rules: Mapping[Any, Rule], watch: Recorder | Follower, *, images_last: bool) -> None:
        super().__init__()
        self._images_last, self._rules, self._watch = images_last, rules, watch
        self.calls: list[Call] = []
        self.ended: UnsupportedError | None = None  # a model may catch what is raised within it

    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return self._call(func, args, kwargs or {})
        except UnsupportedError as error:
            self.ended = self.ended or error
            raise

    def _call(self, func: Any, args: Any, kwargs: Any) -> Any:
        name = name_of(func)
        if name in METADATA:
            return func(*args, **kwargs)
        if func is functional.multi_head_attention_forward:
            with self:
                return _steps_of_attention(*args, **kwargs)
        if func is Tensor.__iter__:
            with self:
                return iter(args[0].unbind(0))
        watch = self._watch
        key = watch.key(args, kwargs)
        foreign = name in FOREIGN and not watch.given
        if not foreign:
            watch.expect(func, key)
        if watch.used and torch.is_grad_enabled():  # else it is a part that the model itself keeps out of training
            result = self._use(func, watch.used, args, kwargs)
        elif func is Tensor.view and self._images_last:
            result = _viewed(*args, **kwargs)
        else:
            result = func(*args, **kwargs)
        if name in UNWRITTEN and isinstance(result, Tensor):
            result.zero_()  # whatever was in that memory before, other records included
        if name in UNCHANGED and args and isinstance(result, Tensor) and _as_it_was(args[0], result):
            watch.same(result, key[0])
        if not foreign:
            watch.note(func, key, result, args, kwargs)
        return result

    def _use(self, func: Any, used: list[str], args: Any, kwargs: Any) -> Any:
        """A call on trained parameters: by a rule, or without a tensor in its result (a shape, a device, a dtype)."""
        if func in self._rules:
            return self._note(self._rules[func], func, used, args, kwargs)
        result = func(*args, **kwargs)
        if any(True for _ in tensors_in(result)):
            raise UnsupportedError(f"{used[0]} is used by {name_of(func)}")
        return result

    def _note(self, rule: Rule, func: Any, used: list[str], args: Any, kwargs: Any) -> Tensor:
        input, weight, bias, options = rule.bind(*args, **kwargs)
        names = [None if t is None else self._watch.trained.get(id(t)) for t in (weight, bias)]
        if sorted(used) != sorted(name for name in names if name is not None):
            raise UnsupportedError(f"{used[0]} is used as data")
        # Leaves of their own: the output gets its place in the graph, and a backward pass that the model itself makes
        # does not reach the model's parameters.
        trained = [t for t, name in zip((weight, bias), names, strict=True) if t is not None and name]
        leaves = {id(t): t.detach().requires_grad_() for t in trained}
        args = [leaves.get(id(a), a) for a in args]
        output = rule.run(func, self._images_last, *args, **{key: leaves.get(id(a), a) for key, a in kwargs.items()})
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


def _as_it_was(before: Any, after: Tensor) -> bool:
    return isinstance(before, Tensor) and (before.dtype, before.device) == (after.dtype, after.device)
