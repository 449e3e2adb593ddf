"""What a client may release from one secret batch, and what it costs: the settings of the private step.

All that is released from a batch (gradient sum, loss) is one event. Nothing here reads data.
"""

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated

from fedfdp.core import ranges
from fedfdp.core.errors import SettingError, require
from fedfdp.core.kinds import check_kinds
from fedfdp.privacy.accounting import Event, find


@dataclass(frozen=True)
class DPSGD:
    """Poisson-sampled, clipped, noised gradients for every client, within an (ε, δ) budget for every record.

    What is left out is None until a run begins. Of ε, σ and the number of rounds the one that is left out is then
    solved from the other two; the rest is chosen from public facts (`training/defaults.py`), before anything reads it.
    """

    epsilon: float | None = None  # the budget of every client; left out: solved from σ and rounds
    delta: float = None  # type: ignore[assignment]  # how likely ε may fail; left out: 1e-5, less for large holders
    sigma: Annotated[float, ranges.NOISE] | None = None  # noise multiplier of the gradient; left out: the least for ε
    q: Annotated[float, ranges.SAMPLING] = None  # type: ignore[assignment]  # how likely a record is in a batch
    clip: Annotated[float, ranges.CLIP] = None  # type: ignore[assignment]  # C, the bound of a record's gradient
    sigma_loss: Annotated[float, ranges.NOISE] = None  # type: ignore[assignment]  # noise multiplier of a released loss
    sigma_count: Annotated[float, ranges.NOISE] = 10.0  # noise multiplier of a released count
    accountant: str = "pld"  # how events add up: pld is tight, rdp faster and looser; your own: package.module:Class
    budgets: dict[str, float] = field(default_factory=dict)  # an ε of their own for clients by name

    def __post_init__(self) -> None:
        ranges.check(self, "privacy")
        check_kinds(self, "privacy")
        fits = self.delta is None or 0 < self.delta < 1
        require(fits, "privacy.delta", self.delta, "a probability in (0, 1)", "take less than 1/records, as 1e-5")
        fits = self.epsilon is None or _positive(self.epsilon)
        require(fits, "privacy.epsilon", self.epsilon, "a budget above 0", "remove [privacy] for a run without privacy")
        for client, budget in self.budgets.items():
            place = f"privacy.budgets.{client}"
            require(_positive(budget), place, budget, "an ε above 0", "leave it out for the common one")
        find(self.accountant, "privacy.accountant", plans=True, enforces=True)

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

    def ledger_accountant(self, *, adaptive: bool) -> str:
        """The name of the accountant that keeps the ledgers: a filter if what a round costs reacts to the run."""
        return "filter" if adaptive else self.accountant


_event = lru_cache(maxsize=256)(Event)  # many clients release the same; checking it once is enough


def _positive(value: float) -> bool:
    return value > 0 and math.isfinite(value)
