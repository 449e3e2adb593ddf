"""ALI-DPFL: "Differentially Private Federated Learning with Adaptive Local Iterations" (Ling et al., 2024).

DP-FedAvg whose number of local steps τ the server chooses anew each round (`local_steps.py`) from estimates of a
curvature μ and a gap Γ. Its authors' clients send these un-noised; here they are made of released values alone. With
w_t and w_s the weights of a client's present and previous round, g̃_i and F̃_i its first noised gradient and loss there:
  μ² ≈ Σ p_i (‖g̃_i(w_t) − g̃_i(w_s)‖² − 2d(σC/(q·n_i))²)/‖w_t − w_s‖²  (less what the noise adds on average)
  Γ ≈ |Σ p_i (F̃_i(w_t) − F̃_i(w_s))|
smoothed over rounds. g̃ is clipped, so μ is the curvature of what DPSGD descends. Only the loss has to be paid for.

What a round costs depends on what was released before it, which accounting for fixed schedules does not cover: a Rényi
filter keeps the budget, and `privacy.accountant` must be "rdp". Plans count with τ = 1.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

from fedfdp.algorithms.base import Algorithm, Mean
from fedfdp.algorithms.local_round import LocalRound, Question, Released
from fedfdp.algorithms.local_steps import MOST_STEPS, Estimates, Seen, Terms, affordable_steps, compare, next_steps
from fedfdp.algorithms.record_types import Broadcast, Population, ServerState, Upload
from fedfdp.core import ranges
from fedfdp.core import weights as w
from fedfdp.core.errors import SettingError
from fedfdp.core.records import Weights
from fedfdp.privacy.dpsgd import DPSGD


@dataclass(frozen=True)
class ALIState(ServerState):
    terms: Terms
    tau: int
    spent: float = 0.0  # of R_c
    estimates: Estimates | None = None  # of all clients, smoothed


@dataclass(frozen=True)
class ALIBroadcast(Broadcast):
    tau: Annotated[int, ranges.TAU]


@dataclass(frozen=True)
class ALIUpload(Upload):
    estimates: Estimates | None = field(
        metadata={"meaning": "curvature and loss gap, made of noised gradients and noised losses"}
    )  # None in a client's first round


@dataclass(frozen=True, kw_only=True)
class ALIDPFL(Algorithm[ALIState, ALIBroadcast, ALIUpload, Seen]):
    """DPSGD with τ local steps; `local_steps` is the first τ. Ends when R_s rounds or R_c steps are used up."""

    round_budget: Annotated[int, ranges.ROUNDS] = 100  # R_s
    step_budget: Annotated[int, ranges.BUDGET_STEPS] | None = None  # R_c; None: as many as ε allows
    loss_clip: Annotated[float, ranges.LOSS_BOUND] = 2.5  # C_l: released losses are clamped to [0, C_l]
    smoothing: float = 0.9  # the part of the old estimates of μ and Γ that a round keeps

    name: ClassVar[str] = "ali_dpfl"
    adaptive: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.local_epochs is None, "local_epochs", "not here: the server chooses steps", "leave it out")
        self.require(0 <= self.smoothing < 1, "smoothing", "at least 0, below 1", "0.9 is usual")

    def check_privacy(self, privacy: DPSGD | None) -> None:
        if privacy is None:
            raise SettingError("algorithm.name", self.name, "exists only with privacy", "add [privacy] or take fedavg")
        if privacy.accountant != "rdp":
            allowed = f"{self.name} chooses its steps during the run, which takes a Rényi filter"
            raise SettingError("privacy.accountant", privacy.accountant, allowed, 'set privacy.accountant = "rdp"')

    def private_steps(self, broadcast: ALIBroadcast | None, privacy: DPSGD) -> int:
        return 1 if broadcast is None else broadcast.tau

    def question(self, memory: Seen) -> Question:
        return Question(self.loss_clip)

    def init(self, weights: Weights, population: Population, privacy: DPSGD | None) -> ALIState:
        self.check_privacy(privacy)
        assert privacy is not None
        noise = w.size(weights) * (privacy.noise * privacy.clip / (privacy.q * population.smallest)) ** 2
        steps, price = self.step_budget, 0.0
        if steps is None:
            steps, price = affordable_steps(privacy.event(), self.joint_event(privacy), privacy)
        first = 1 if self.round_budget >= steps else min(self.local_steps or 1, MOST_STEPS, steps)
        terms = Terms(privacy.clip, noise, self.round_budget, steps, price)
        return ALIState(0, weights, population, terms, first)

    def direction(self, here: LocalRound[ALIBroadcast, Seen], released: Released) -> Weights:
        """g̃_i(w), of which the first is remembered."""
        if here.step == 0:
            # a copy, since the clients share the broadcast's tensors and a checkpoint holds each tensor once
            here.memory = Seen(w.clone(here.weights), released.gradient, here.loss)
        return released.gradient

    def reply(self, here: LocalRound[ALIBroadcast, Seen], update: Weights) -> tuple[ALIUpload, Seen]:
        estimates = compare(here.before, here.memory, here.client)
        return ALIUpload(here.client.name, here.client.records, update, estimates), here.memory

    def aggregate(self, state: ALIState, uploads: Iterable[ALIUpload]) -> ALIState:
        """The mean of the updates and of the estimates of μ² and Γ, and from them the next τ."""
        model, curvature, descent, weight = Mean(state.weights), 0.0, 0.0, 0.0
        for upload in uploads:
            model.add(upload.update, upload.weight)
            if upload.estimates is not None:
                curvature += upload.weight * upload.estimates.curvature
                descent += upload.weight * upload.estimates.descent
                weight += upload.weight
        estimates, price = state.estimates, state.terms.loss_price
        if weight:
            mean = Estimates(curvature / weight, descent / weight)
            estimates = mean if estimates is None else estimates.towards(mean, 1 - self.smoothing)
        spent = state.spent + state.tau + price
        left = max(1, int(state.terms.steps - spent - price))
        return replace(
            state,
            round=state.round + 1,
            weights=model.added_to(state.weights),
            tau=min(next_steps(state.tau, estimates, state.terms), left),
            spent=spent,
            estimates=estimates,
        )

    def done(self, state: ALIState) -> bool:
        return state.round >= state.terms.rounds or state.spent + 1 + state.terms.loss_price > state.terms.steps
