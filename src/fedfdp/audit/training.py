"""An audit in one training run: canaries are dealt to the clients by coin flips, and guessed from what they upload.

The run is `fedfdp.train` as anyone calls it; only the records are made for the purpose.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedfdp.algorithms.fedfdp import FDPState, FDPUpload, FedFDP
from fedfdp.audit.game import Game
from fedfdp.audit.onerun import epsilon_lower, guess, planned_share
from fedfdp.core.errors import SettingError
from fedfdp.data import Federation
from fedfdp.runs.train import train

FEATURES, ORDINARY = 5, 50  # of ordinary records (no canaries): features, and records per client


@dataclass(frozen=True)
class TrainingFinding:
    """What one run showed of ε at δ, and the ε that its ledger states."""

    epsilon_lower: float
    epsilon_claimed: float
    epsilon_ceiling: float  # the most that so many canaries could show
    delta: float
    confidence: float
    canaries: int
    guesses: int
    correct: int
    scores: NDArray[np.float64]
    inside: NDArray[np.bool_]

    @property
    def exceeded(self) -> bool:
        return self.epsilon_lower > self.epsilon_claimed


@dataclass(frozen=True, kw_only=True)
class TrainingGame(Game):
    """One run with `canaries` records that are there or not. Each has a weight of its own, which nothing else moves.

    A canary's gradient reaches its bound in every round and always points the same way, so the sum of its client's
    updates holds all that the gradients tell about it.
    """

    sigma: float = 2.0
    q: float = 0.5
    rounds: int = 20
    canaries: int = 2000
    clients: int = 4

    def __post_init__(self) -> None:
        if self.canaries < 10 * self.clients or self.canaries % self.clients:
            allowed = f"a multiple of {self.clients}, at least {10 * self.clients}"
            raise SettingError("canaries", self.canaries, allowed, "2000 is usual")

    def play(
        self, seed: int, *, confidence: float = 0.999, on_progress: Callable[[int], None] = lambda done: None
    ) -> TrainingFinding:
        """One run from this seed, and what its uploads show; `on_progress` is told how many rounds are done."""
        rng = np.random.default_rng(np.random.SeedSequence([seed, 1]))
        inside = rng.random(self.canaries) < 0.5
        model = nn.Linear(FEATURES + self.canaries, 1, bias=False)
        nn.init.zeros_(model.weight)
        seen: dict[str, Tensor] = {}
        result = train(
            model,
            self._federation(inside, rng),
            algorithm=_watched(seen),
            privacy=self.privacy,
            rounds=self.rounds,
            seed=seed,
            eval_every=self.rounds,
            on_update=lambda update: on_progress(update.step.round),
        )
        each = self.canaries // self.clients
        moved = [seen[f"client-{i}"][0, FEATURES + i * each : FEATURES + (i + 1) * each] for i in range(self.clients)]
        return self._judge(torch.cat(moved).numpy(), inside, result.summary["epsilon"], confidence)

    def _judge(
        self, scores: NDArray[np.float64], inside: NDArray[np.bool_], claimed: float, confidence: float
    ) -> TrainingFinding:
        limits = {"delta": self.delta, "confidence": confidence}
        # How far a canary moves the mean of its score, in deviations of the summed noise.
        shift = self.q * math.sqrt(self.rounds) / self.sigma
        best = guess(scores, inside, share=planned_share(shift, self.canaries, **limits), **limits)
        return TrainingFinding(
            epsilon_lower=best.epsilon,
            epsilon_claimed=claimed,
            epsilon_ceiling=epsilon_lower(best.guesses, best.guesses, self.canaries, **limits),
            delta=self.delta,
            confidence=confidence,
            canaries=self.canaries,
            guesses=best.guesses,
            correct=best.correct,
            scores=scores,
            inside=inside,
        )

    def _federation(self, inside: NDArray[np.bool_], rng: np.random.Generator) -> Federation:
        """Every client: its canaries, a record that contributes nothing for each that is not there, ordinary records.

        A canary wants its weight at 1000: the loss is near 1000², the gradient points the same way in every round.
        """
        each = self.canaries // self.clients
        slope = rng.standard_normal(FEATURES)
        clients: dict[str, tuple[Tensor, Tensor, Tensor, Tensor]] = {}
        for i in range(self.clients):
            own = slice(i * each, (i + 1) * each)
            x = np.zeros((each + ORDINARY, FEATURES + self.canaries), dtype=np.float32)
            y = np.zeros(each + ORDINARY, dtype=np.float32)
            x[np.arange(each), FEATURES + np.arange(self.canaries)[own]] = inside[own]
            y[:each] = 1000.0 * inside[own]
            x[each:, :FEATURES] = rng.standard_normal((ORDINARY, FEATURES))
            y[each:] = x[each:, :FEATURES] @ slope
            data = torch.from_numpy(x), torch.from_numpy(y)
            clients[f"client-{i}"] = (*data, data[0][each:], data[1][each:])
        return Federation.from_clients(clients, classes=None)


def _watched(seen: dict[str, Tensor]) -> FedFDP:
    """FedFDP whose server adds up what each client uploads, as any server can."""

    class Watched(FedFDP):
        def aggregate(self, state: FDPState, uploads: Iterable[FDPUpload]) -> FDPState:
            def noted() -> Iterator[FDPUpload]:
                for upload in uploads:
                    update = upload.update["weight"].double()
                    seen[upload.client] = seen[upload.client] + update if upload.client in seen else update
                    yield upload

            return super().aggregate(state, noted())

    return Watched(lr=0.1, lam=1.0, coefficients="paper", server_lam=0.0, initial_loss=1.0)
