"""What a run is put together from: who takes part, how they are reached, what they have spent, how a model is judged.

An engine of your own derives from `Engine`. Nothing here computes.
"""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fedfdp.algorithms.base import Broadcast, Upload
from fedfdp.core.records import Weights
from fedfdp.core.trees import Form
from fedfdp.fairness.metrics import ClientResults
from fedfdp.fairness.performance import Performance
from fedfdp.models.tasks import Task
from fedfdp.privacy.accounting import Event
from fedfdp.privacy.accounting.events import Adjacency, History


class Members(Protocol):
    """Who takes part, and what is public about their records: a `Federation` here, a roster of nodes elsewhere."""

    @property
    def names(self) -> Sequence[str]:
        """The clients, in the order of summation."""

    @property
    def sizes(self) -> Sequence[int]:
        """n_i of each client: its number of training records, or of persons; 0 if not declared yet."""

    @property
    def name(self) -> str:
        """A name of the data, for display."""

    @property
    def unit(self) -> str:
        """Whom the guarantee is for: a record, or all records with one value in the column named here."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one record."""

    @property
    def tokens(self) -> bool:
        """Whether records are token numbers."""

    @property
    def form(self) -> Form:
        """The inputs of one record."""

    @property
    def task(self) -> Task:
        """What a model is trained for."""

    @property
    def classes(self) -> int | None:
        """None for regression."""

    @property
    def outputs(self) -> int:
        """How many values a model gives for a record."""

    @property
    def before(self) -> Sequence[Event]:
        """What every client released before round 0."""

    def holdings(self) -> Mapping[str, object]:
        """Who holds how many records, as far as it is known here: what clients.json holds."""


Own = Mapping[str, Weights]  # the models of clients that have one of their own, by name
NOBODY: Own = MappingProxyType({})


class Account(Protocol):
    """What one client has spent, of which budget."""

    @property
    def budget(self) -> float | None: ...

    @property
    def ceiling(self) -> float:
        """The ε that is never exceeded, at the run's δ; infinity where nothing promises one."""

    def epsilon(self, adjacency: Adjacency = "zero-out") -> float:
        """What may be claimed, exact; infinite where the accountant has no number for this adjacency."""


class Accounts(Protocol):
    """What all clients have spent: ledgers that are kept here, or what nodes report of theirs."""

    def ledger(self, client: str) -> Account: ...

    def epsilon(self) -> float:
        """The exact ε of the client that spent most."""

    def epsilon_so_far(self) -> float:
        """How much the client that spent most has used up, for display after every round; never a number to claim."""

    def used(self) -> Mapping[str, float]:
        """`epsilon_so_far` of each client; a client that is not in it has spent nothing."""

    def charged(self) -> int:
        """Events charged so far, over all clients. It only ever grows."""

    def sync(self) -> None:
        """Makes every charge so far durable. It is called before anything that came of a charge is written."""


class Evaluator(Protocol):
    """Judges weights on the clients' own records, as far as they allow it."""

    performance: Performance  # the metric whose variance over clients is Ψ

    def test(self, weights: Weights, own: Own = NOBODY) -> ClientResults:
        """On the test records; results are in the order of `Members.names`. Clients may have weights of their own."""

    def train(self, weights: Weights, own: Own = NOBODY) -> ClientResults:
        """On the training records."""

    def alone(self) -> Mapping[str, NDArray[np.float64]]:
        """By the metric's name: what each client's own model reaches, as far as it is known here."""


@dataclass(frozen=True)
class EngineFacts:
    """What only the engine knows of a run, for its summary and its privacy statement."""

    summary: Mapping[str, object] = field(default_factory=dict)  # more entries of the summary
    evaluated: Mapping[str, int] = field(default_factory=dict)  # evaluations on raw test records, by client
    remarks: tuple[str, ...] = ()  # lines of the statement: where the numbers of two sides differ
    unnoised: Mapping[str, str] = field(default_factory=dict)  # rounds without noise that no ε covers, by client


@dataclass(frozen=True)
class Standing:
    """How a client elsewhere stands in the run."""

    state: Literal["here", "asked", "late", "refused", "left out", "out of budget", "missing"]
    why: str = ""
    round: int | None = None  # of its last answer, counted from 1


@runtime_checkable
class Engine(Protocol):
    """Moves a broadcast to the clients and their uploads back. It charges a client before it draws a batch."""

    unable: Collection[str] = frozenset()  # the clients that could not pay when they were last asked
    local_losses: Mapping[str, float] = MappingProxyType({})  # of the clients' own models, where a round was watched
    saves_every_round: bool = False  # True if repeating a round costs more than a checkpoint
    keeps_memories: bool = True  # False where what clients remember, their own models too, stays with them
    charges_here: bool = True  # False where clients elsewhere keep their ledgers, and say what they have spent
    standing: Mapping[str, Standing] = MappingProxyType({})  # of clients elsewhere
    quorum: int | None = None  # clients that a round needs; None where all of them are here
    # Called by an engine that waits for clients, while it waits and when something has changed. It may end the run.
    listener: Callable[[], None] | None = None

    @abstractmethod
    def round(
        self,
        broadcast: Broadcast,
        memories: Mapping[str, object],
        asked: Sequence[str] | None = None,
        *,
        watch: bool = False,
    ) -> Iterator[tuple[Upload, object]]:
        """Upload and new memory of each client that is asked (None: all) and can pay, one at a time.

        Args:
            broadcast: what the method sends to every client.
            memories: what each client remembers; one that is not in it starts with the method's `memory()`.
            asked: names of clients.
            watch: whether `local_losses` are wanted of this round.
        """

    def close(self) -> None:
        """Called once, when the run is over or has failed."""
        return

    def settle(self) -> None:
        """Called before what was spent is stated: the time to ask clients elsewhere."""
        return

    def ahead(self, more: History) -> Accounts | None:
        """The accounts as they would be if every client released this too; None where they hold this run alone."""
        return None

    def facts(self) -> EngineFacts:
        """What the summary and the statement say of this engine."""
        return EngineFacts()
