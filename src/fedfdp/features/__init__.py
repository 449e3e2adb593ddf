"""Features: a fixed map of one record by itself, applied before anything private is computed.

It learns nothing from the records, so it costs no privacy: noise is on the trained head alone.
"""

import copy
import inspect
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn

from fedfdp.core.errors import FedFDPError, SettingError, nearest
from fedfdp.core.importing import imported
from fedfdp.core.trees import Form, Leaf, is_plain
from fedfdp.features.efficientnet import efficientnet_lite0
from fedfdp.features.scattering import Scattering

FEATURES: dict[str, Callable[..., nn.Module]] = {
    "scattering": Scattering,
    "efficientnet-lite0": efficientnet_lite0,
}
REMARKS = {"scattering": "", "efficientnet-lite0": "public pretraining"}  # said beside every number with these features


@dataclass(frozen=True)
class Features:
    """A fixed map of each record, before the trained model: one by name, or `package.module:Class`."""

    name: str = "scattering"  # scattering, efficientnet-lite0 (public pretraining), or package.module:Class
    arguments: dict[str, object] = field(default_factory=dict)  # of the map's class or function

    def __post_init__(self) -> None:
        if ":" not in self.name and self.name not in FEATURES:
            raise SettingError("features.name", self.name, nearest(self.name, FEATURES), "or package.module:Class")

    def build(self) -> nn.Module:
        """The map: frozen, in evaluation mode, made without a draw from torch's global state."""
        factory = imported(self.name, "features.name", "Class") if ":" in self.name else FEATURES[self.name]
        try:
            inspect.signature(factory).bind(**self.arguments)
        except TypeError as error:
            takes = ", ".join(inspect.signature(factory).parameters) or "none"
            allowed = f"{self.name} {error}; it takes {takes}"
            raise SettingError("features.arguments", self.arguments, allowed) from None
        with torch.random.fork_rng():
            torch.manual_seed(0)
            try:
                made = factory(**self.arguments)
            except FedFDPError:
                raise
            except Exception as error:  # whatever the user's own code raises
                reason = (str(error).splitlines() or [""])[0]
                allowed = f"cannot be made with {self.arguments}: {type(error).__name__}: {reason}"
                raise SettingError("features.name", self.name, allowed, "check features.arguments") from error
        if not isinstance(made, nn.Module):
            raise SettingError("features.name", self.name, f"makes a {type(made).__name__}, not a torch.nn.Module")
        return frozen(made)


def as_map(features: "str | Features | nn.Module") -> nn.Module:
    """The map that is meant: by name, by its settings, or a frozen copy of a module."""
    if isinstance(features, nn.Module):
        return frozen(copy.deepcopy(features))
    return (Features(features) if isinstance(features, str) else features).build()


def about(features: "str | Features | nn.Module | None") -> dict[str, str]:
    """What a run's summary says of its features, with a remark beside every number; nothing without features."""
    if features is None:
        return {}
    if isinstance(features, nn.Module):
        name = f"{type(features).__module__}:{type(features).__qualname__}"
    else:
        name = features if isinstance(features, str) else features.name
    return {"features": name, "remark": REMARKS.get(name, "own features")}


def normalised(features: "str | Features | nn.Module | None") -> bool:
    """Whether the features of a record are known to have mean 0 and variance 1."""
    return about(features).get("features") in FEATURES


def whole(front: nn.Module | None, head: nn.Module) -> nn.Module:
    """The model for records as they are: the features, then what was trained."""
    if front is None:
        return head
    return nn.Sequential(OrderedDict(features=front, head=head)).eval()


def frozen(module: nn.Module) -> nn.Module:
    """The module in evaluation mode, none of its parameters trained."""
    return module.requires_grad_(False).eval()


def form_after(module: nn.Module, form: Form) -> Form:
    """The form of a record's features; only of records with one input."""
    if not is_plain(form):
        allowed = f"records have {len(form)} inputs, and features are of one"
        raise SettingError("features", type(module).__name__, allowed, "leave features out, or map them beforehand")
    return (Leaf("", shape_after(module, form[0].shape), "float32"),)


def shape_after(module: nn.Module, input_shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a record's features; a SettingError if the map does not take such records."""
    name = type(module).__name__
    try:
        with torch.inference_mode():
            found = module(torch.zeros(2, *input_shape))
    except FedFDPError:
        raise
    except Exception as error:  # whatever the user's own code raises
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        allowed = f"{name} cannot take records of shape {input_shape}: {reason}"
        raise SettingError("features", name, allowed, "choose other features, or leave [features] out") from None
    if not isinstance(found, torch.Tensor) or found.dim() < 2 or len(found) != 2 or not found.is_floating_point():
        given = f"{found.dtype} {tuple(found.shape)}" if isinstance(found, torch.Tensor) else type(found).__name__
        raise SettingError("features", name, f"gives {given} for two records, expected floats (2, …)", "change forward")
    return tuple(found.shape[1:])
