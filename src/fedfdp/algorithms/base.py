"""What a federated method is: hyper-parameters, four records and five functions over them.

A method says what clients and server compute. It never sees noise, files or networks: it asks its client for a gradient
and gets a plain or a private one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, ClassVar, Protocol

from fedfdp.core import ranges
from fedfdp.core import weights as w
from fedfdp.core.errors import require
from fedfdp.core.records import Weights
from fedfdp.fairness.coefficients import PlainClip
from fedfdp.privacy.accounting import Event
from fedfdp.privacy.clipping.bounded import Coefficient
from fedfdp.privacy.dpsgd import DPSGD

SMALLEST_RATE = 1e-20  # where a step size that decays ends: no weight is moved by such a step


@dataclass(frozen=True)
class Population:
    """What is public about the clients: how many, the records they declare (all, and the smallest), the classes."""

    clients: int  # how many
    records: int  # Σ n_i
    smallest: int  # min n_i
    classes: int | None  # None for regression


@dataclass(frozen=True)
class ServerState:
    """All the server remembers from round to round."""

    round: int
    weights: Weights
    population: Population


@dataclass(frozen=True)
class Broadcast:
    """What every client of a round receives. Numbers are annotated with their range: a client refuses others."""

    round: Annotated[int, ranges.ROUND]
    weights: Weights


@dataclass(frozen=True)
class Upload:
    """What a client sends: its update w_i − w_t, and the number of records it declares."""

    client: str
    records: int
    update: Weights
    discount: float = field(default=1.0, kw_only=True)  # set by the server where the upload comes late

    @property
    def weight(self) -> float:
        """What the upload counts for: p_i up to a common factor."""
        return self.records * self.discount


@dataclass(frozen=True)
class ClientState:
    """All a client remembers from round to round, besides its ledger."""


@dataclass(frozen=True)
class LossQuery:
    """The batch's mean loss, each clamped to [0, bound]: at the same weights, or at what `at` makes of the gradient.

    With `count`, also the fraction of the losses that lie within the bound.
    """

    bound: float
    count: bool = False
    at: Callable[[Weights], Weights] | None = None


@dataclass(frozen=True)
class Released:
    """What came out of one batch: a mean gradient; where asked for, a mean loss and the fractions within the bounds."""

    gradient: Weights
    loss: float | None = None
    losses_within: float | None = None
    norms_within: float | None = None


class Batch(Protocol):
    """One batch of a client's records. A private one is secret and answers once."""

    def release(
        self,
        weights: Weights,
        *,
        coefficient: Coefficient,
        loss: LossQuery | None = None,
        count_norms: bool = False,
    ) -> Released:
        """All that leaves this batch, in one call. Under privacy it is one event, every part of it noised.

        A plain batch always tells its mean loss.
        """
        ...


class Client(Protocol):
    """What a method may ask of a client in one round."""

    name: str
    records: int
    privacy: DPSGD | None

    def batches(self, *, steps: int | None, epochs: int | None, batch_size: int) -> Iterator[Batch]:
        """`steps` batches, or `epochs` passes; Poisson-sampled under privacy, shuffled minibatches otherwise."""
        ...

    def loss(self, weights: Weights) -> float:
        """The mean loss on all of the client's records; only without privacy."""
        ...


@dataclass(frozen=True, kw_only=True)
class Algorithm(ABC):
    """A method with its hyper-parameters. Subclasses override what differs from federated averaging."""

    lr: Annotated[float, ranges.RATE] = 0.1  # η of the first round
    lr_decay: Annotated[float, ranges.DECAY] = 1.0  # what η is multiplied by after each round
    local_steps: Annotated[int, ranges.STEPS] | None = None  # K, a client's steps in a round
    local_epochs: Annotated[int, ranges.STEPS] | None = None  # … or E, passes; neither: one step if private
    batch_size: Annotated[int, ranges.RECORDS] = 64  # without privacy; private batches are drawn with rate q

    name: ClassVar[str]  # how a config names the method
    adaptive: ClassVar[bool] = False  # whether what a round costs depends on what was released before it
    State: ClassVar[type[Any]] = ServerState  # what the server remembers
    Message: ClassVar[type[Any]] = Broadcast  # what is sent to clients
    Reply: ClassVar[type[Any]] = Upload  # what a client uploads
    Memory: ClassVar[type[Any]] = ClientState  # what a client remembers

    def __post_init__(self) -> None:
        ranges.check(self, "algorithm")
        both = self.local_steps is not None and self.local_epochs is not None
        self.require(not both, "local_epochs", "not together with local_steps", "leave one of them out")

    def require(self, ok: bool, name: str, allowed: str, fix: str) -> None:
        """A SettingError that names the hyper-parameter unless `ok`."""
        require(ok, f"algorithm.{name}", getattr(self, name), allowed, fix)

    def rate(self, round: int) -> float:
        """η of a round, the first being round 0; never so small that dividing by it fails."""
        return max(self.lr * self.lr_decay**round, min(self.lr, SMALLEST_RATE))

    def check_privacy(self, privacy: DPSGD | None) -> None:  # noqa: B027
        """Raises where the method exists only with, or only without, privacy."""

    def released(self) -> tuple[str, ...]:
        """The fields of an upload that are made of a client's records."""
        return tuple(f.name for f in fields(self.Reply) if f.name not in ("client", "records", "discount"))

    # What a private round costs -------------------------------------------------------------------------------------

    def private_steps(self, broadcast: Broadcast | None, privacy: DPSGD) -> int:
        """K, the batches of a private round: E epochs are E·⌈1/q⌉ of them."""
        if self.local_epochs is not None:
            return self.local_epochs * -int(-1 // privacy.q)
        return self.local_steps or 1

    def joint_event(self, privacy: DPSGD) -> Event:
        """The batch of a round that releases most: the gradient alone, or with a loss and counts."""
        return privacy.event()

    def events(self, broadcast: Broadcast | None, privacy: DPSGD) -> tuple[Event, ...]:
        """Every event of one round, known before it: K − 1 gradients and one joint event."""
        steps, plain, joint = self.private_steps(broadcast, privacy), privacy.event(), self.joint_event(privacy)
        if joint == plain:
            return (replace(plain, count=steps),)
        return (joint,) if steps == 1 else (replace(plain, count=steps - 1), joint)

    # The two sides --------------------------------------------------------------------------------------------------

    def init(self, weights: Weights, population: Population, privacy: DPSGD | None) -> Any:
        """The server's state before round 0, from what is public."""
        return ServerState(0, weights, population)

    def broadcast(self, state: Any) -> Any:
        """What the round's clients receive."""
        return Broadcast(state.round, state.weights)

    def memory(self) -> Any:
        """A client's state before its first round."""
        return self.Memory()

    def coefficient(self, broadcast: Any, privacy: DPSGD | None) -> Coefficient:
        """What is wanted of each record; engines that compute many clients at once ask it too."""
        return PlainClip(privacy.clip if privacy else float("inf"))

    @abstractmethod
    def local(self, broadcast: Any, memory: Any, client: Client) -> tuple[Any, Any]:
        """A client's round: what it uploads, and its new state."""

    def aggregate(self, state: Any, uploads: Iterable[Any]) -> Any:
        """The new state: w_t + Σ p_i (w_i − w_t), p over those that took part. Uploads are read once, one at a time."""
        total, weight = w.zeros_like(state.weights), 0.0
        for upload in uploads:
            w.add_(total, upload.update, scale=upload.weight)
            weight += upload.weight
        moved = w.add(state.weights, total, scale=1 / weight) if weight else state.weights
        return replace(state, round=state.round + 1, weights=moved)

    def done(self, state: Any) -> bool:
        """Whether the method itself ends the run, before the rounds or the budget do."""
        return False

    # Help for subclasses --------------------------------------------------------------------------------------------

    def batches(self, broadcast: Any, client: Client) -> Iterator[Batch]:
        """The round's batches of one client, as the hyper-parameters say."""
        if client.privacy is not None:
            steps = self.private_steps(broadcast, client.privacy)
            return client.batches(steps=steps, epochs=None, batch_size=self.batch_size)
        epochs = None if self.local_steps is not None else self.local_epochs or 1
        return client.batches(steps=self.local_steps, epochs=epochs, batch_size=self.batch_size)


def descend(
    start: Weights,
    batches: Iterable[Batch],
    *,
    lr: float,
    direction: Callable[[Batch, Weights], Weights],
    consume: bool = False,
) -> Weights:
    """w_i − w_t after the round's steps w ← w − η·direction(batch, w): the one local loop of every method.

    Corrections that read no data (proximal terms, control variates) go into `direction`, after the release. With
    `consume` a direction is changed in place: for methods that need none of them afterwards.
    """
    times = w.multiply_ if consume else w.multiply
    update: Weights | None = None
    for batch in batches:
        here = start if update is None else w.add(start, update)
        step = direction(batch, here)
        if update is None:
            update = times(step, -lr)
        else:
            w.add_(update, step, scale=-lr)
    return w.zeros_like(start) if update is None else update
