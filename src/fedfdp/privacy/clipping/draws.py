"""Random numbers of a pass: drawn by torch, from a state that nothing but the calls that draw may change.

A model that sets a seed itself draws the same in every pass, by a record's place in the batch: without the first
record, all others would have other draws.
"""

import torch
from torch import Generator, Tensor

SEEDED = "it sets a seed, and draws by the places of records in the batch"


class Draws:
    """Compares the state of torch's generators with what the calls that were seen have left."""

    def __init__(self, device: torch.device) -> None:
        self._generators = [torch.default_generator]
        if device.type == "cuda":
            number = torch.cuda.current_device() if device.index is None else device.index
            self._generators.append(torch.cuda.default_generators[number])
        self._first: list[Tensor] = []
        self._seen: list[Tensor] = []
        self.left_alone = True  # known when the pass is over

    def __enter__(self) -> "Draws":
        self._first = self._seen = self._states()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """A pass that ended early, or has set a state, leaves that from before it: the next one draws from it."""
        self.left_alone = self.untouched
        if kind is not None or not self.left_alone:
            for generator, state in zip(self._generators, self._first, strict=True):
                generator.set_state(state)

    @property
    def untouched(self) -> bool:
        """Whether nothing has changed the state but calls that were seen."""
        return all(map(torch.equal, self._states(), self._seen))

    def drawn(self) -> None:
        """After a call that draws."""
        self._seen = self._states()

    def _states(self) -> list[Tensor]:
        return [generator.get_state() for generator in self._generators]


def has_generator(value: object) -> bool:
    """Whether there is a generator among these arguments."""
    if isinstance(value, (tuple, list)):
        return any(map(has_generator, value))
    return any(map(has_generator, value.values())) if isinstance(value, dict) else isinstance(value, Generator)
