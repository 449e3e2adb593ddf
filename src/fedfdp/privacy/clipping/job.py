"""Whose gradients are wanted: a model, a loss that gives one number per record, and the parameters that are trained."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor, nn

from fedfdp.core.errors import SettingError
from fedfdp.privacy.clipping.modules import Layers, named_layers

LossFn = Callable[..., Tensor]


@dataclass(frozen=True)
class Job:
    """A model, its loss and its trained parameters by name."""

    model: nn.Module
    loss_fn: LossFn
    params: Mapping[str, Tensor]
    listed: Layers | None = None  # the model's layers, where they are listed already

    @cached_property
    def layers(self) -> Layers:
        return named_layers(self.model) if self.listed is None else self.listed

    @cached_property
    def own(self) -> dict[int, tuple[str, Tensor]]:
        """Every parameter and buffer with its name, by its id."""
        found: dict[int, tuple[str, Tensor]] = {}
        for name, layer in self.layers:
            for kind in (layer._parameters, layer._buffers):
                for own, tensor in kind.items():
                    if tensor is not None:
                        found.setdefault(id(tensor), (f"{name}.{own}" if name else own, tensor))
        return found

    @cached_property
    def trained(self) -> dict[int, str]:
        """The names of the trained parameters, by id."""
        return {id(parameter): name for name, parameter in self.params.items()}


class Together(nn.Module):
    """A model that takes all records of a person as one input, (persons, records of each, …).

    It is examined for every number of records that a person has.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *given: Tensor, **named: Tensor) -> object:
        flat = {name: x.flatten(0, 1) for name, x in named.items()}
        return self.model(*[x.flatten(0, 1) for x in given], **flat)


def one_loss_per_record(losses: Tensor, batch: int) -> Tensor:
    """The losses, if there is one for each record."""
    if losses.shape != (batch,):
        given = f"shape {tuple(losses.shape)} for {batch} records"
        raise SettingError("loss_fn", given, "must return one loss per record, shape (B,)", "use reduction='none'")
    return losses
