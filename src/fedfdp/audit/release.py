"""A game on one release: can clients with a canary record be told from clients without it by what they upload?

Every trial is a client of the local engine that runs FedFDP as any run does: batch, clipping, noise, upload. Nothing of
the mechanism is written a second time here.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import nn

from fedfdp.algorithms import FedFDP
from fedfdp.algorithms.base import Population
from fedfdp.algorithms.fedfdp import FDPBroadcast, FDPUpload
from fedfdp.audit.game import Game
from fedfdp.audit.separation import (
    GaussianPrecision,
    Numbers,
    PureEpsilon,
    Separation,
    World,
    ceiling,
    separate,
)
from fedfdp.core.errors import SettingError
from fedfdp.data import Federation
from fedfdp.engines.local import LocalEngine
from fedfdp.models.learner import Learner
from fedfdp.models.losses import squared_error
from fedfdp.privacy.accounting import Event, epsilon
from fedfdp.privacy.noise.randomness import Randomness

BLOCK = 1000  # trials of each kind in one round of the engine: all their clipped sums come out of one pass


@dataclass(frozen=True)
class ReleaseFinding:
    """What the game showed of ε at δ. Both lower bounds hold together with the confidence stated."""

    epsilon_lower: float
    epsilon_lower_gaussian: float  # of the subsampled Gaussian that leaks as much; ∞ where none does
    epsilon_claimed: float
    epsilon_ceiling: float  # the most that so many trials could show
    delta: float
    confidence: float
    trials: int  # with the canary, and as many without
    pure: Separation
    gaussian: Separation
    inside: World
    outside: World

    @property
    def exceeded(self) -> bool:
        """Whether the claim is refuted: a claimed σ states a whole trade-off curve, and either bound may break it."""
        return max(self.epsilon_lower, self.epsilon_lower_gaussian) > self.epsilon_claimed


@dataclass(frozen=True)
class Trials:
    """How a game is played: how often, with whose randomness, by which learner; and who is told how many are done."""

    count: int
    randomness: Randomness
    learner: type[Learner] = Learner
    on_progress: Callable[[int], None] = lambda done: None


@dataclass(frozen=True, kw_only=True)
class ReleaseGame(Game):
    """One joint release of gradient and loss, played `trials` times with the canary and as often without.

    The canary is the worst case: its gradient and loss reach their bounds, and its weight s = 1 + λ(F_ij − F) is below
    zero. With `releases` > 1 every client releases that often at the same weights, and only the last one is judged.
    """

    releases: int = 1
    bystanders: int = 1  # other records of a client

    @cached_property
    def algorithm(self) -> FedFDP:
        return FedFDP(lr=1.0, lam=1.0, coefficients="paper", loss_clip=2.5, initial_loss=20.0, server_lam=0.0)

    @property
    def claimed(self) -> float:
        """The ε that the accountant states for one such release."""
        return epsilon(self.algorithm.events(None, self.privacy), self.delta)

    def play(self, trials: Trials) -> tuple[World, World]:
        """What was seen with the canary, and without: along its gradient, of its loss, and both by their precision.

        Each is 1 higher where the canary was used; weighed by precision they order trials as the likelihood ratio does.
        """
        if trials.count < BLOCK:
            raise SettingError("trials", trials.count, f"at least {BLOCK}", "100000 is usual")
        blocks = -(-trials.count // BLOCK)
        federation, seen = self._federation(), np.empty((blocks, 2, 2, BLOCK))
        for block in range(blocks):
            fresh = trials.learner(self._model(), squared_error)  # nothing may stay from one trial to the next
            engine = LocalEngine(
                federation, fresh, self.algorithm, privacy=self.privacy, randomness=trials.randomness, book=None
            )
            state = self.algorithm.init(fresh.initial(), _population(federation), self.privacy)
            looks = []
            for release in range(self.releases):
                now = replace(state, round=block * self.releases + release)
                looks.append(self._look(engine, self.algorithm.broadcast(now)))
            seen[block] = self._judged(looks)
            trials.on_progress(min((block + 1) * BLOCK, trials.count))
        gradient, loss = seen.transpose(1, 2, 0, 3).reshape(2, 2, -1)[:, :, : trials.count]
        joint = gradient / self.sigma**2 + loss / self.sigma_loss**2
        with_canary, without = (
            {"gradient and loss": joint[world], "gradient": gradient[world], "loss": loss[world]} for world in (0, 1)
        )
        return with_canary, without

    def judge(self, inside: World, outside: World, *, confidence: float = 0.999) -> ReleaseFinding:
        """The lower bounds on ε from what was seen; each of the two is held to half of the error."""
        trials, each = len(inside["loss"]), 1 - (1 - confidence) / 2
        leak = PureEpsilon(self.delta)
        pure = separate(inside, outside, leak, confidence=each)
        gaussian = separate(inside, outside, GaussianPrecision(self.q), confidence=each)
        return ReleaseFinding(
            epsilon_lower=pure.leak,
            epsilon_lower_gaussian=self._epsilon_at(gaussian.leak),
            epsilon_claimed=self.claimed,
            epsilon_ceiling=ceiling(trials, leak, confidence=each),
            delta=self.delta,
            confidence=confidence,
            trials=trials,
            pure=pure,
            gaussian=gaussian,
            inside=inside,
            outside=outside,
        )

    def _look(self, engine: LocalEngine, broadcast: FDPBroadcast) -> Numbers:
        """What one round shows of each trial, with the canary and without: along its gradient, and of its loss."""
        uploads = [upload for upload, _ in engine.round(broadcast, {}) if isinstance(upload, FDPUpload)]
        expected = self.q * uploads[0].records
        # The canary's gradient is −2y·x, its coefficient negative, the step −η: uploads move against x.
        moved = torch.stack([upload.update["weight"][0, 0] for upload in uploads]).double().numpy()
        losses = self._losses(engine, uploads)
        looks = np.stack([-moved * expected / self.clip, losses * expected / self.algorithm.loss_clip])
        return looks.reshape(2, 2, BLOCK)

    def _losses(self, engine: LocalEngine, uploads: Sequence[FDPUpload]) -> Numbers:
        return np.array([upload.loss for upload in uploads])

    def _judged(self, looks: Sequence[Numbers]) -> Numbers:
        """What is compared with the claim, of all that was seen."""
        return looks[-1]

    def _epsilon_at(self, precision: float) -> float:
        if precision <= 1e-3:  # far below what any number of trials resolves
            return 0.0
        return epsilon([Event(self.q, (1 / precision,))], self.delta) if precision < math.inf else math.inf

    def _model(self) -> nn.Module:
        model = nn.Linear(2, 1, bias=False)
        nn.init.zeros_(model.weight)
        return model

    def _federation(self) -> Federation:
        return Federation.from_clients(self._clients(), classes=None, test_fraction=0.0)

    def _clients(self, canaries: int = 1) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
        """Clients with the canary, then clients without: loss y² and gradient −2y·x at w = 0."""
        far = 25.0 * self.clip
        canary, nothing, bystander = ([far, 0.0], 2.0), ([0.0, 0.0], 0.0), ([0.0, 1000 * far], 0.01)

        def records(first: tuple[list[float], float]) -> tuple[torch.Tensor, torch.Tensor]:
            x, y = zip(*[first] * canaries, *[bystander] * self.bystanders, strict=True)
            return torch.tensor(x), torch.tensor(y)

        kinds = (("with", records(canary)), ("without", records(nothing)))
        return {f"{kind}-{i}": data for kind, data in kinds for i in range(BLOCK)}


def _population(federation: Federation) -> Population:
    clients, records = len(federation), federation.clients[0].size
    return Population(clients=clients, records=records * clients, smallest=records, classes=None)
