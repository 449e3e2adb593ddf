"""A model's layers and parameters, listed anew at every step: nn.Module's own iterators take several times as long."""

from torch import nn

Layers = list[tuple[str, nn.Module]]


def named_layers(model: nn.Module) -> Layers:
    """The same as `model.named_modules()`, in the same order."""
    found: dict[nn.Module, str] = {}
    ahead = [("", model)]
    while ahead:
        name, layer = ahead.pop()
        if layer not in found:
            found[layer] = name
            if layer._modules:
                start = f"{name}." if name else ""
                children = [(start + child, part) for child, part in layer._modules.items() if part is not None]
                ahead.extend(reversed(children))
    return [(name, layer) for layer, name in found.items()]


def trained(layers: Layers) -> dict[str, nn.Parameter]:
    """Those of `model.named_parameters()` that require a gradient, in the same order."""
    names: dict[nn.Parameter, str] = {}
    for name, layer in layers:
        for own, parameter in layer._parameters.items():
            if parameter is not None and parameter.requires_grad and parameter not in names:
                names[parameter] = f"{name}.{own}" if name else own
    return {name: parameter for parameter, name in names.items()}
