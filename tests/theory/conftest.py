"""One set of constants worked by hand throughout, and a way to change some of them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fedfdp.theory.bound import Constants

# n = σ²C²d/B̂² = 1·4·1/4 = 1 and C/G = 2, so that most sums can be done in the head.
BASE = Constants(
    L=2.0,
    mu=1.0,
    G=1.0,
    gamma_het=1.0,
    q0=-0.5,
    q1=1.0,
    sigma=1.0,
    clip=2.0,
    dim=1,
    b_hat=2.0,
    distance=1.0,
    rounds=10,
)


@pytest.fixture
def constants() -> Callable[..., Constants]:
    def build(**changes: Any) -> Constants:
        return replace(BASE, **changes)

    return build
