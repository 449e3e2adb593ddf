"""What a client may release from one secret batch, and what it costs: the settings of the private step.

All that is released from a batch (gradient sum, loss) is one event. Nothing here reads data.
"""

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from fedfdp.errors import SettingError
from fedfdp.privacy.accounting import Event

Accountant = Literal["pld", "rdp"]


@dataclass(frozen=True)
class DPSGD:
    """Poisson-sampled, clipped, noised gradients for every client, within an (ε, δ) budget for every record.

    One of ε, σ and the number of rounds may be None; it is solved from the other two before a run.
    """

    epsilon: float | None = 3.52
    delta: float = 1e-5
    sigma: float | None = 2.0
    q: float = 0.05
    clip: float = 0.1
    sigma_loss: float = 5.0
    sigma_count: float = 10.0
    accountant: Accountant = "pld"
    budgets: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check(0 < self.q <= 1, "q", self.q, "a sampling rate in (0, 1]", "0.05 means 5 % of the records in a batch")
        fits = 1e-12 <= self.clip <= 1e12
        _check(fits, "clip", self.clip, "a finite bound above 0 on a gradient's norm (1e-12 to 1e12)", "0.1 is usual")
        _check(0 < self.delta < 1, "delta", self.delta, "a probability in (0, 1)", "take less than 1/records, as 1e-5")
        for name in ("epsilon", "sigma", "sigma_loss", "sigma_count"):
            value = getattr(self, name)
            meaning = "a budget" if name == "epsilon" else "a noise multiplier"
            hint = "remove [privacy] for a run without privacy"
            _check(value is None or _positive(value), name, value, f"{meaning} above 0", hint)
        for client, budget in self.budgets.items():
            _check(_positive(budget), f"budgets.{client}", budget, "an ε above 0", "leave it out for the common one")

    @property
    def noise(self) -> float:
        """σ, once it is known."""
        if self.sigma is None:
            raise SettingError("privacy.sigma", None, "unknown until it is solved from ε and the rounds")
        return self.sigma

    def event(self, *, losses: int = 0, counts: int = 0) -> Event:
        """All that one batch releases, as one privacy event: a gradient, and so many noised losses and counts."""
        return _event(self.q, (self.noise, *[self.sigma_loss] * losses, *[self.sigma_count] * counts))

    def budget(self, client: str) -> float | None:
        """The ε this client is willing to spend."""
        return self.budgets.get(client, self.epsilon)


_event = lru_cache(maxsize=256)(Event)  # many clients release the same; checking it once is enough


def _positive(value: float) -> bool:
    return value > 0 and math.isfinite(value)


def _check(ok: bool, name: str, value: object, allowed: str, fix: str) -> None:
    if not ok:
        raise SettingError(f"privacy.{name}", value, allowed, fix)
