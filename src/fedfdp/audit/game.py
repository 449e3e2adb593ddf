"""What both games share: the settings of the mechanism that is attacked."""

from dataclasses import dataclass
from functools import cached_property

from fedfdp.privacy.dpsgd import DPSGD


@dataclass(frozen=True, kw_only=True)
class Game:
    """An attack on the private step with these settings."""

    sigma: float = 1.0
    q: float = 0.1
    clip: float = 1.0
    sigma_loss: float = 5.0
    delta: float = 1e-5

    @cached_property
    def privacy(self) -> DPSGD:
        return DPSGD(
            epsilon=None, delta=self.delta, sigma=self.sigma, q=self.q, clip=self.clip, sigma_loss=self.sigma_loss
        )
