"""A whole FedFDP round in three ways: the plain gradient pass over its samples, ours, and client by client with Opacus.

Within a repetition all three see the same samples. The plain pass takes as long however many clients have them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfdp.algorithms import FedFDP
from fedfdp.algorithms.base import Population
from fedfdp.algorithms.fedfdp import FDPState, FDPUpload
from fedfdp.bench.models import CLASSES, Subject
from fedfdp.bench.peers.base import Peer, Setting, backward
from fedfdp.bench.peers.by_opacus import fixed_for_opacus, unwrapped
from fedfdp.core import weights as w
from fedfdp.core.records import Weights
from fedfdp.data import Federation
from fedfdp.engines.local import LocalEngine
from fedfdp.models.learner import Learner
from fedfdp.models.losses import cross_entropy
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.privacy.ledger import LedgerBook
from fedfdp.privacy.noise.randomness import Key, Seeded
from fedfdp.training.client import LocalClient

RATE = 0.25  # q
PLAIN_BATCH = 300  # records that the plain pass takes at a time; no size is faster by more than noise


@dataclass(frozen=True)
class Task:
    """Clients with equal numbers of random records, `samples` of which are expected in a round."""

    subject: Subject
    clients: int
    samples: int
    setting: Setting

    @cached_property
    def federation(self) -> Federation:
        each = max(1, round(self.samples / RATE / self.clients))
        x, y = self.subject.records(each * self.clients)
        parts = zip(torch.split(x, each), torch.split(y, each), strict=True)
        owners = {f"client-{i}": part for i, part in enumerate(parts)}
        return Federation.from_clients(owners, test_fraction=0.0, classes=CLASSES)

    @property
    def algorithm(self) -> FedFDP:
        return FedFDP(lr=self.setting.lr, server_lam=5.0)

    @property
    def privacy(self) -> DPSGD:
        s = self.setting
        return DPSGD(epsilon=None, delta=1e-5, sigma=s.sigma, q=RATE, clip=s.clip, sigma_loss=s.sigma_loss)

    def first(self, weights: Weights) -> FDPState:
        sizes = [len(client.train) for client in self.federation.clients]
        return self.algorithm.init(weights, Population(len(sizes), sum(sizes), min(sizes), CLASSES), self.privacy)


class SameForAll(Seeded):
    """Random numbers that do not depend on the request, so that every peer draws the same samples. Protects nobody."""

    def _name(self, key: Key) -> bytes:
        return super()._name(key._replace(request=""))


class Round(Peer):
    """Counts rounds, and draws the records of each client in one."""

    def __init__(self, task: Task) -> None:
        self.task, self.federation = task, task.federation
        self.model = task.subject.build()
        self.learner = Learner(self.model, cross_entropy)
        self.round = -1
        self.drawn: list[Tensor] = []

    def prepare(self) -> None:
        self.round += 1
        self.drawn = []
        for data in self.federation.clients:
            client = LocalClient(
                data, self.learner, privacy=self.task.privacy, randomness=SameForAll(0), round=self.round
            )
            self.drawn.append(data.train.index[client.poisson(0)])


class PlainPass(Round):
    """Forward and backward over the round's samples, whichever client has them, and one step."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=task.setting.lr)

    def step(self) -> None:
        rows = torch.cat(self.drawn)
        for part in torch.split(rows, PLAIN_BATCH):
            x, y = self.federation.x[part], self.federation.y[part]
            backward(functional.cross_entropy(self.model(x), y, reduction="sum") / len(rows))
        self.optimizer.step()
        self.optimizer.zero_grad()

    def weights(self) -> Weights:
        return self.learner.initial()


class OurRound(Round):
    """The program's own engine, ledger and aggregation, as a run uses them."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.state = task.first(self.learner.initial())
        budgets: dict[str, float | None] = {client.name: None for client in self.federation.clients}
        book = LedgerBook.open(None, data="", config="", budgets=budgets, delta=task.privacy.delta)
        self.algorithm = task.algorithm
        self.engine = LocalEngine(
            self.federation, self.learner, self.algorithm, privacy=task.privacy, randomness=SameForAll(0), book=book
        )

    def prepare(self) -> None:
        pass  # the engine draws, and that is timed

    def step(self) -> None:
        broadcast = self.algorithm.broadcast(self.state)
        answers = self.engine.round(broadcast, {})
        uploads = (upload for upload, _ in answers if isinstance(upload, FDPUpload))
        self.state = self.algorithm.aggregate(self.state, uploads)

    def weights(self) -> Weights:
        return w.clone(self.state.weights)


class OpacusRound(Round):
    """The same round with Opacus: one wrapped model that every client in turn loads, trains for a step and uploads."""

    def __init__(self, task: Task) -> None:
        from opacus.grad_sample import GradSampleModule
        from opacus.optimizers import DPOptimizer

        super().__init__(task)
        self.algorithm = task.algorithm
        self.hooked = GradSampleModule(fixed_for_opacus(self.model))
        self.state = task.first(unwrapped(self.hooked))
        self.optimizer = DPOptimizer(
            torch.optim.SGD(self.hooked.parameters(), lr=task.setting.lr),
            noise_multiplier=task.setting.sigma,
            max_grad_norm=task.setting.clip,
            expected_batch_size=1,
        )

    def step(self) -> None:
        self.state = self.algorithm.aggregate(self.state, self._uploads())

    def weights(self) -> Weights:
        return w.clone(self.state.weights)

    def _uploads(self) -> Iterator[FDPUpload]:
        start = self.state.weights
        inner: nn.Module = self.hooked._module
        for data, rows in zip(self.federation.clients, self.drawn, strict=True):
            inner.load_state_dict(start)
            expected = RATE * len(data.train)
            self.optimizer.expected_batch_size = expected
            losses = cross_entropy(self.hooked(self.federation.x[rows]), self.federation.y[rows])
            backward(losses.mean())
            self.optimizer.step()
            self.optimizer.zero_grad()
            update = w.subtract(dict(inner.named_parameters()), start)
            yield FDPUpload(data.name, len(data.train), update, self._released(losses.detach(), expected), None)

    def _released(self, losses: Tensor, expected: float) -> float:
        bound = self.algorithm.loss_clip
        noise = self.task.privacy.sigma_loss * bound * torch.randn(())
        return float(losses.clamp(0, bound).sum() + noise) / expected


ROUND_PEERS: dict[str, Callable[[Task], Peer]] = {"plain": PlainPass, "ours": OurRound, "opacus_hooks": OpacusRound}
