"""Functions that are re-run as the series of calls they are made of, so that each of these meets its own rule."""

import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

# Attention is one function to a TorchFunctionMode. Re-run with `has_torch_function` patched to False, each of its steps
# is a call of its own.
_attention = types.FunctionType(
    functional.multi_head_attention_forward.__code__,
    {**vars(functional), "has_torch_function": lambda tensors: False},
    argdefs=functional.multi_head_attention_forward.__defaults__,
)


def _rows_of(tensor: Tensor) -> Iterator[Tensor]:
    if not tensor.dim():
        raise TypeError("iteration over a 0-d tensor")  # as torch says it
    return iter(tensor.unbind(0))


IN_STEPS: dict[object, Callable[..., Any]] = {
    functional.multi_head_attention_forward: _attention,
    Tensor.__iter__: _rows_of,
}


def _is_trained(*weights: Tensor | None) -> bool:
    return any(weight is not None and weight.requires_grad for weight in weights)


def _per_channel(weight: Tensor, input: Tensor) -> Tensor:
    """One number per channel, to be broadcast over the places behind the channels."""
    return weight.view(-1, *[1] * (input.dim() - 2))


def _scaled(normal: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    if weight is not None:
        normal = normal * _per_channel(weight, normal)
    return normal if bias is None else normal + _per_channel(bias, normal)


def _rms_norm(input: Tensor, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Any:
    if weight is None or not _is_trained(weight):
        return NotImplemented
    return functional.rms_norm(input, list(shape), None, eps) * weight


def _instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    if not _is_trained(weight, bias) or running_mean is not None or not use_input_stats:
        return NotImplemented
    return _scaled(functional.instance_norm(input, None, None, None, None, True, momentum, eps), weight, bias)


def _batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    if not _is_trained(weight, bias) or training:
        return NotImplemented
    return _scaled(
        functional.batch_norm(input, running_mean, running_var, None, None, False, momentum, eps), weight, bias
    )


def _prelu(input: Tensor, weight: Tensor) -> Any:
    if not _is_trained(weight):
        return NotImplemented
    slope = weight if weight.numel() == 1 or input.dim() < 2 else _per_channel(weight, input)
    return torch.where(input > 0, input, slope * input)


def _embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Any:
    if not _is_trained(weight) or input.dim() != 2 or max_norm is not None or padding_idx is not None:
        return NotImplemented
    rows = functional.embedding(input, weight, None, None, norm_type, scale_grad_by_freq, sparse)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    return rows.max(1).values if mode == "max" else rows.sum(1) if mode == "sum" else rows.mean(1)


def _bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if not _is_trained(weight, bias):
        return NotImplemented
    pairs = (input1.unsqueeze(-1) * input2.unsqueeze(-2)).flatten(-2)
    return functional.linear(pairs, weight.flatten(1), bias)


def _layer_by_layer(func: Callable[..., Any]) -> Callable[..., Any]:
    """Recurrent layers on top of each other, or both ways, as one call for each."""

    def run(*args: Any, **kwargs: Any) -> Any:
        if kwargs or len(args) != 9 or type(args[2]) not in (list, tuple) or type(args[3]) is not bool:
            return NotImplemented  # a packed sequence
        h, state, weights, biased, layers, dropout, training, both, batch_first = args
        each, ways, time = 4 if biased else 2, 2 if both else 1, 1 if batch_first else 0
        if layers * ways == 1 or len(weights) != each * layers * ways:
            return NotImplemented
        ends: list[Sequence[Tensor]] = []
        for layer in range(layers):
            outputs = []
            for way in range(ways):
                at = layer * ways + way
                mine = [s[at : at + 1] for s in state] if isinstance(state, (tuple, list)) else state[at : at + 1]
                own = list(weights[each * at : each * (at + 1)])
                output, *last = func(
                    h.flip(time) if way else h, mine, own, biased, 1, 0.0, training, False, batch_first
                )
                outputs.append(output.flip(time) if way else output)
                ends.append(last)
            h = torch.cat(outputs, 2) if both else outputs[0]
            if dropout and layer + 1 < layers:
                h = functional.dropout(h, dropout, training)
        return h, *(torch.cat(found, 0) for found in zip(*ends, strict=True))

    return run


# Taken apart only where something in them is trained, which is then a weight of a simpler call. NotImplemented: it is
# called as it is.
WITH_WEIGHTS: dict[object, Callable[..., Any]] = {
    functional.rms_norm: _rms_norm,
    functional.instance_norm: _instance_norm,
    functional.batch_norm: _batch_norm,
    functional.prelu: _prelu,
    functional.embedding_bag: _embedding_bag,
    functional.bilinear: _bilinear,
    **{func: _layer_by_layer(func) for func in (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)},
}
