"""How many local steps are worth taking: the rule of ALI-DPFL (Ling et al., 2024), from public and released numbers.

Nothing here reads data; all of it may be computed by anyone who sees the uploads.
"""

from dataclasses import dataclass, field
from math import sqrt

from fedfdp.algorithms.local_round import Client
from fedfdp.algorithms.record_types import ClientState
from fedfdp.core import ranges
from fedfdp.core import weights as w
from fedfdp.core.records import Weights
from fedfdp.privacy.accounting import Event, max_count
from fedfdp.privacy.dpsgd import DPSGD

MOST_STEPS = int(ranges.TAU.high)


@dataclass(frozen=True)
class Terms:
    """What is public and never changes during a run."""

    clip: float  # C
    noise: float  # v = σ²C²d/B̂² with B̂ = q·min n_i
    rounds: int  # R_s
    steps: int  # R_c
    loss_price: float  # what a round's loss costs, in steps


@dataclass(frozen=True)
class Seen(ClientState):
    """What a client released at the weights of its last round: the first gradient and loss. Empty before any round."""

    weights: Weights = field(default_factory=Weights)
    gradient: Weights = field(default_factory=Weights)
    loss: float = 0.0


@dataclass(frozen=True)
class Estimates:
    """The curvature μ² and the gap Γ (with its sign): one client's, or a mean over clients and rounds."""

    curvature: float
    descent: float

    def towards(self, new: "Estimates", share: float) -> "Estimates":
        """These moved towards the new ones by that share of the difference."""
        curvature = self.curvature + share * (new.curvature - self.curvature)
        return Estimates(curvature, self.descent + share * (new.descent - self.descent))


def compare(before: Seen, now: Seen, client: Client) -> Estimates | None:
    """One client's μ² and Γ, from what it released in two rounds: post-processing, free."""
    distance = w.squared_norm(w.subtract(now.weights, before.weights)) if before.weights else 0.0
    if not distance or client.privacy is None:
        return None
    p = client.privacy
    noise = 2 * w.size(now.gradient) * (p.noise * p.clip / (p.q * client.records)) ** 2  # of two noised gradients
    change = w.squared_norm(w.subtract(now.gradient, before.gradient)) - noise
    return Estimates(change / distance, now.loss - before.loss)


def next_steps(tau: int, estimates: Estimates | None, terms: Terms) -> int:
    """√(1 + (4/μ² + 3C² + 2ΓTμ + v)/((2 + 2/T)(C² + v))) with T = min(R_s·τ, R_c), rounded, in [1, 100].

    τ stays as it is while there is no usable μ: before the first comparison, or where noise hides it.
    """
    if terms.rounds >= terms.steps:
        return 1
    if estimates is None or not 0 < estimates.curvature < float("inf"):
        return tau
    mu2, gap = estimates.curvature, abs(estimates.descent)
    T, C2, v = min(terms.rounds * tau, terms.steps), terms.clip**2, terms.noise
    gain = 4 / mu2 + 3 * C2 + 2 * gap * T * sqrt(mu2) + v
    return round(min(max(sqrt(1 + gain / ((2 + 2 / T) * (C2 + v))), 1.0), MOST_STEPS))


def affordable_steps(gradient: Event, joint: Event, privacy: DPSGD) -> tuple[int, float]:
    """R_c, the steps that ε allows if only gradients were released, and what a loss beside one costs, in steps."""
    assert privacy.epsilon is not None
    alone, together = (
        max(1, max_count([event], privacy.epsilon, privacy.delta, accountant="rdp")) for event in (gradient, joint)
    )
    return alone, alone / together - 1
