"""What is measured: a step of a model at a batch size, or a round of a model with a number of clients."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from fedfdp.bench import rounds
from fedfdp.bench.models import MODELS, Subject
from fedfdp.bench.named.base import Named
from fedfdp.bench.named.large import LARGE
from fedfdp.bench.peers import STEP_PEERS, Peer, Setting, Task
from fedfdp.core.errors import SettingError, nearest

STEP_MODELS = ("mnist-cnn", "cifar-cnn", "mlp", "transformer")
ROUND_MODELS = ("small-cnn", "mnist-cnn")
BATCHES = (32, 300, 2048)
CLIENTS = (10, 100, 1000)
SAMPLES = 3000  # of a round, over all clients
USUAL = Setting()


class Case(ABC):
    """One group of rows in the tables: peers that do the same work."""

    what: ClassVar[Literal["step", "round"]]
    peers: ClassVar[Sequence[str]]
    model: str
    clients: int | None
    batch: int

    @abstractmethod
    def build(self, peer: str) -> Peer: ...

    @abstractmethod
    def small(self) -> "Case":
        """The same on a few records."""

    def needs(self, peer: str) -> float:
        """About how many bytes a step of this peer takes, where that can be too many."""
        return 0.0


@dataclass(frozen=True)
class StepCase(Case):
    what, peers = "step", tuple(STEP_PEERS)
    model: str
    batch: int
    setting: Setting = USUAL
    clients: None = None

    def build(self, peer: str) -> Peer:
        subject = _subject(self.model)
        return STEP_PEERS[peer].make(Task(subject.build(), *subject.records(self.batch), self.setting))

    def small(self) -> "StepCase":
        return replace(self, batch=2)

    def needs(self, peer: str) -> float:
        if not STEP_PEERS[peer].stores_all:
            return 0.0
        weights = sum(math.prod(p.shape) for p in _subject(self.model).build().parameters())
        return 2.0 * 4 * weights * self.batch  # the gradients of all records, and temporaries as large


def _subject(model: str) -> Subject | Named:
    return MODELS[model] if model in MODELS else LARGE[model]


@dataclass(frozen=True)
class RoundCase(Case):
    what, peers = "round", tuple(rounds.ROUND_PEERS)
    model: str
    clients: int
    batch: int = SAMPLES
    setting: Setting = USUAL

    def build(self, peer: str) -> Peer:
        return rounds.ROUND_PEERS[peer](rounds.Task(MODELS[self.model], self.clients, self.batch, self.setting))

    def small(self) -> "RoundCase":
        return replace(self, clients=2, batch=4)


def check_counts(option: str, counts: Sequence[int]) -> None:
    for count in counts:
        if count < 1:
            raise SettingError(option, count, "must be 1 or more")


def select(
    *,
    what: str | None = None,
    models: Sequence[str] = (),
    batches: Sequence[int] = (),
    clients: Sequence[int] = (),
) -> list[Case]:
    """The cases asked for; whatever is left empty means all, but large models only where they are named."""
    if what not in (None, "step", "round"):
        raise SettingError("what", what, "step or round", "leave it out for both")
    for name in models:
        if name not in MODELS and name not in LARGE:
            raise SettingError("models", name, nearest(name, [*MODELS, *LARGE]))
    check_counts("batches", batches)
    check_counts("clients", clients)
    cases: list[Case] = []
    if what != "round":
        chosen = [m for m in (*STEP_MODELS, *LARGE) if m in (models or MODELS)]
        cases += [StepCase(m, b) for m in chosen for b in batches or BATCHES]
    if what != "step":
        cases += [RoundCase(m, c) for m in ROUND_MODELS if m in (models or MODELS) for c in clients or CLIENTS]
    if not cases:
        raise SettingError("models", ", ".join(models), f"no {what} of them is measured", "leave --what out")
    return cases
