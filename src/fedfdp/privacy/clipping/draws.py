"""Random numbers of a pass: drawn as torch would, under a seed that the model must leave alone.

A model that sets a seed itself draws the same in every pass, by a record's place in the batch: without the first
record, all others would have other draws.
"""

import secrets

import torch
from torch import Generator, Tensor


class Draws:
    """Within it the seed that torch shows is a number of this pass's own; what is drawn does not depend on it."""

    def __init__(self, device: torch.device) -> None:
        self._there: list[Generator] = []  # on a graphics processor the seed is all there is: it is only compared
        if device.type == "cuda":
            number = torch.cuda.current_device() if device.index is None else device.index
            self._there = [torch.cuda.default_generators[number]]
        self._seeds: list[int] = []
        self._before = torch.zeros(0)

    def __enter__(self) -> "Draws":
        self._before = _seed_shown(torch.frombuffer(bytearray(secrets.token_bytes(8)), dtype=torch.uint8))
        self._seeds = [own.initial_seed() for own in (torch.default_generator, *self._there)]
        return self

    def __exit__(self, *error: object) -> None:
        _seed_shown(self._before)

    @property
    def untouched(self) -> bool:
        """Whether the seeds are still those of this pass."""
        return self._seeds == [own.initial_seed() for own in (torch.default_generator, *self._there)]


def _seed_shown(seed: Tensor) -> Tensor:
    """Has the generator show another seed, its state's first eight bytes, and go on drawing as it was; the old one."""
    state = torch.default_generator.get_state()
    before = state[:8].clone()
    state[:8] = seed
    torch.default_generator.set_state(state)
    return before


def has_generator(value: object) -> bool:
    """Whether there is a generator among these arguments."""
    if isinstance(value, (tuple, list)):
        return any(map(has_generator, value))
    return any(map(has_generator, value.values())) if isinstance(value, dict) else isinstance(value, Generator)
