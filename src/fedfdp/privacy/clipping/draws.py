"""Random numbers of a pass: from a seed that is new in every pass, and that the model leaves alone.

A model that sets a seed itself draws the same in every pass, by a record's place in the batch: without the first
record, all others would have other draws.
"""

import torch
from torch import Generator, Tensor


class Draws:
    """Within it torch draws from a seed of this pass's own. Afterwards it goes on as if nothing had been drawn."""

    def __init__(self, device: torch.device) -> None:
        self._generators = [torch.default_generator]
        if device.type == "cuda":
            number = torch.cuda.current_device() if device.index is None else device.index
            self._generators.append(torch.cuda.default_generators[number])
        self._seed = 0
        self._before: list[Tensor] = []

    def __enter__(self) -> "Draws":
        self._seed = int(torch.empty((), dtype=torch.int64).random_())
        self._before = [generator.get_state() for generator in self._generators]
        for generator in self._generators:
            generator.manual_seed(self._seed)
        return self

    def __exit__(self, *error: object) -> None:
        for generator, state in zip(self._generators, self._before, strict=True):
            generator.set_state(state)

    @property
    def untouched(self) -> bool:
        """Whether the seed is still that of this pass."""
        return all(generator.initial_seed() == self._seed for generator in self._generators)


def has_generator(value: object) -> bool:
    """Whether there is a generator among these arguments."""
    if isinstance(value, (tuple, list)):
        return any(map(has_generator, value))
    return any(map(has_generator, value.values())) if isinstance(value, dict) else isinstance(value, Generator)
