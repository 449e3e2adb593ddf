"""Sees every use of a trainable parameter in a forward pass and notes the calls whose gradients a rule can work out.

It watches functions, not modules, so tied weights, functional calls and attention's packed projection are seen too.
Never changes the model: the watched functions get copies of its parameters that share their memory, and an unknown use
ends the pass.
"""

import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from fedfdp.privacy.clipping.contributions import Contribution


class UnsupportedError(Exception):
    """A use of parameters that no rule covers; the pass is done another way."""


class AmbiguousError(UnsupportedError):
    """Records too alike to tell which rows are whose; others may do."""


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

    def rows(self, input: Tensor, options: Any) -> int:
        raise UnsupportedError

    def per_sample(self, call: Call, grad: Tensor, batch: int, before: int) -> dict[str, Tensor]:
        """The gradients of `call` by parameter name, (B, *shape), rows laid out as (before, batch, after)."""
        raise UnsupportedError

    def contributions(self, call: Call, grad: Tensor, batch: int, before: int) -> list[Contribution]:
        """The same in the cheapest form, for parameters that no other call uses."""
        raise UnsupportedError


# Attention dispatches as one opaque function; its code, told that nobody watches the door, runs its steps in sight.
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


class Still(TorchFunctionMode):
    """Dropout and drawn noise switched off without touching the model: for comparing passes with each other."""

    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is functional.multi_head_attention_forward:
            with self:
                return _steps_of_attention(*args, **kwargs)
        if func in _DROPOUTS:
            return args[0]
        if func is functional.scaled_dot_product_attention:
            names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
            return func(**{**dict(zip(names, args, strict=False)), **kwargs, "dropout_p": 0.0})
        result = func(*args, **kwargs)
        return result.fill_(0.5) if func in _DRAWS and result.is_floating_point() else result


class Tape(TorchFunctionMode):
    """Notes the calls of known functions on the parameters named; raises UnsupportedError for any other use of them."""

    def __init__(self, parameters: Mapping[str, Tensor], rules: Mapping[Any, Rule], *, images_last: bool) -> None:
        super().__init__()
        self._images_last = images_last
        self.calls: list[Call] = []
        self._names = {id(parameter): name for name, parameter in parameters.items()}
        self._rules = rules

    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is functional.multi_head_attention_forward:
            with self:
                return _steps_of_attention(*args, **kwargs)
        used = self._used(args) + (self._used(kwargs.values()) if kwargs else [])
        if not used:
            if func is Tensor.view and self._images_last:
                return _viewed(*args, **kwargs)
            return func(*args, **kwargs)
        if not torch.is_grad_enabled():
            return func(*args, **kwargs)  # a part the model itself keeps out of training
        if func in self._rules:
            return self._note(self._rules[func], func, used, args, kwargs)
        result = func(*args, **kwargs)
        if any(isinstance(part, Tensor) for part in (result if isinstance(result, (list, tuple)) else [result])):
            raise UnsupportedError(f"{used[0]} is used by {getattr(func, '__name__', func)}")
        return result  # a shape, a device, a dtype: no gradient flows through it

    def _used(self, values: Any) -> list[str]:
        found = []
        for value in values:
            if id(value) in self._names:
                found.append(self._names[id(value)])
            elif isinstance(value, (list, tuple)):
                found += self._used(value)
        return found

    def _note(self, rule: Rule, func: Any, used: list[str], args: Any, kwargs: Any) -> Tensor:
        input, weight, bias, options = rule.bind(*args, **kwargs)
        names = [self._names.get(id(t)) for t in (weight, bias)]
        if sorted(used) != sorted(name for name in names if name is not None):
            raise UnsupportedError(f"{used[0]} is used as data")
        # Leaves of their own: the output gets its place in the graph, and a backward pass that the model itself makes
        # does not reach the model's parameters.
        leaves = {id(t): t.detach().requires_grad_() for t in (weight, bias) if t is not None and id(t) in self._names}
        args = [leaves.get(id(a), a) for a in args]
        output = rule.run(func, self._images_last, *args, **{key: leaves.get(id(a), a) for key, a in kwargs.items()})
        self.calls.append(
            Call(
                rule=rule,
                weight=names[0],
                bias=names[1],
                input=input.detach(),
                options=options,
                rows=rule.rows(input, options),
                outputs=output.numel(),
                version=input._version,
                edge=get_gradient_edge(output),
            )
        )
        return output
