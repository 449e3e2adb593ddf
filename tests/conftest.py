"""What several tests share."""

import pytest
import torch
from hypothesis import settings

from fedfdp.data import Federation
from fedfdp.privacy.noise.randomness import Seeded

torch.set_num_threads(1)
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def unspoilt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that had something refused must not have later ones refused: a real process stays as it is."""
    monkeypatch.setattr("fedfdp.privacy.clipping.state._spoilt", [])


@pytest.fixture
def shared_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs with one seed draw the same, whatever they compute: to compare two ways of computing one thing."""
    name = Seeded._name
    monkeypatch.setattr(Seeded, "_name", lambda self, key: name(self, key._replace(request="")))


@pytest.fixture
def two_clients() -> Federation:
    """Two holders of a two-weight regression whose every number can be worked out by hand; see test_by_hand.py."""
    a = (torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([0.0, 1.0]))
    b = (torch.tensor([[0.5, 0.0]]), torch.tensor([0.0]))
    return Federation.from_clients({"a": (*a, *a), "b": (*b, *b)}, classes=None)


@pytest.fixture
def digits() -> Federation:
    """Four clients of 300 digits."""
    from fedfdp.data import load

    return Federation.partition(load("digits"), clients=4, how="dirichlet", beta=0.5, fraction=0.17, seed=3)
