"""Models that give a dict, a tuple or an object, of which one entry is the output that counts. Reads no record."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from fedfdp.core.errors import SettingError
from fedfdp.core.identity import slots_of
from fedfdp.models.losses import LossFunction

USUAL = "logits"  # what libraries of models call it
MOST_AT_ONCE = 2**24  # numbers: 64 MB, of which a loss makes several copies


@dataclass(frozen=True)
class Unwrapped:
    """A loss of one entry of what a model gives."""

    loss: LossFunction
    output: str

    def __call__(self, given: object, y: Tensor) -> Tensor:
        """One loss per record."""
        return self.loss(unwrapped(given, self.output), y)


def unwrapped(given: Any, output: str | None) -> Tensor:
    """The entry that counts; what the model gives itself where there is no name of one."""
    if output is None:
        return given  # type: ignore[no-any-return]
    if isinstance(given, Mapping):
        return given[output if output in given else int(output)]  # type: ignore[no-any-return]
    return given[int(output)] if output.isdecimal() else getattr(given, output)  # type: ignore[no-any-return]


def at_once(most: int, numbers: int) -> int:
    """How many records, of at most so many, a model answers together that gives so many numbers for each."""
    return max(1, min(most, MOST_AT_ONCE // max(1, numbers)))


def entry_of(given: Any, wanted: str | int | None, model: str) -> str | None:
    """The name of the entry that counts: the one that was declared, or `logits`; None where a model gives a tensor."""
    names = _names(given)
    if isinstance(given, Tensor) and wanted is None:
        return None
    usual = USUAL if USUAL in names else next(iter(names)) if len({*map(id, names.values())}) == 1 else None
    found = usual if wanted in (None, "") else str(wanted)
    if found is None or found not in names:
        allowed = f"{model} gives {', '.join(names) or type(given).__name__}"
        raise SettingError("output", wanted, allowed, 'name the one that the loss is computed of, as output="logits"')
    return found


def _names(given: Any) -> dict[str, Tensor]:
    """The tensors in what a model gives, by name; those of a tuple by number, and by name where it has names."""
    if isinstance(given, Mapping):
        entries = dict(given)
    elif isinstance(given, tuple | list):
        entries = {str(i): value for i, value in enumerate(given)}
        entries |= dict(zip(getattr(given, "_fields", ()), given, strict=False))
    else:
        held = {} if isinstance(given, Tensor) else {**getattr(given, "__dict__", {}), **slots_of(given)}
        entries = {name: value for name, value in held.items() if not name.startswith("_")}
    return {str(name): value for name, value in entries.items() if isinstance(value, Tensor)}
