"""What a federated method is: hyper-parameters, four records, and hooks that say how it differs from FedAvg.

A method says what clients and server compute. It never sees noise, files or networks: it asks its client for a gradient
and gets a plain or a private one.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, ClassVar, Generic, Self, get_args, get_origin

from fedfdp.algorithms.local_round import Batch, Client, LocalRound, LossQuery, Question, Released
from fedfdp.algorithms.mean import Mean
from fedfdp.algorithms.record_types import (
    Broadcast,
    ClientState,
    MemoryT,
    MessageT,
    Population,
    ReplyT,
    ServerState,
    StateT,
    Upload,
)
from fedfdp.core import ranges
from fedfdp.core import weights as w
from fedfdp.core.errors import require
from fedfdp.core.kinds import check_kinds
from fedfdp.core.records import Weights
from fedfdp.core.settings import left_out
from fedfdp.fairness.coefficients import PlainClip
from fedfdp.privacy.accounting import Event
from fedfdp.privacy.clipping.bounded import Coefficient
from fedfdp.privacy.dpsgd import DPSGD

__all__ = [
    "Algorithm",
    "Batch",
    "Broadcast",
    "Client",
    "ClientState",
    "LocalRound",
    "LossQuery",
    "Mean",
    "Population",
    "Question",
    "Released",
    "ServerState",
    "Upload",
]

SMALLEST_RATE = 1e-20  # the least that a step size decays to: such a step moves no weight
PUBLIC = ("client", "records", "discount")  # fields of an upload that no record enters


@dataclass(frozen=True, kw_only=True)
class Algorithm(Generic[StateT, MessageT, ReplyT, MemoryT]):
    """A method with its hyper-parameters. As it stands it is FedAvg; subclasses override what differs.

    A subclass names its records once: `class Mine(Algorithm[MyState, MyMessage, MyReply, MyMemory])`. One that keeps
    those of FedAvg derives from `FedAvg`.
    """

    lr: Annotated[float, ranges.RATE] = None  # type: ignore[assignment]  # η of the first round; left out: chosen
    lr_decay: Annotated[float, ranges.DECAY] = 1.0  # what η is multiplied by after each round
    local_steps: Annotated[int, ranges.STEPS] | None = None  # K, a client's steps in a round
    local_epochs: Annotated[int, ranges.STEPS] | None = None  # … or E, passes; neither: one step if private
    batch_size: Annotated[int, ranges.RECORDS] = 64  # without privacy; private batches are drawn with rate q

    name: ClassVar[str]  # how a config names the method
    private: ClassVar[bool] = True  # whether the method has a private form
    keeps_updates: ClassVar[bool] = False  # whether the server needs all updates of a round at once
    passes: ClassVar[int] = 1  # how often a round goes over K batches: each pass has its own, and is paid for
    personal: ClassVar[bool] = False  # whether a client has a model of its own, which it is judged by
    adaptive: ClassVar[bool] = False  # whether what a round costs depends on what was released before it
    robust: ClassVar[tuple[str, ...]] = ("median", "trimmed", "norm")  # the `server.robust` that fit its mean
    State: ClassVar[type[Any]] = ServerState  # what the server remembers; this and the next from the type arguments
    Message: ClassVar[type[Any]] = Broadcast  # what is sent to clients
    Reply: ClassVar[type[Any]] = Upload  # what a client uploads
    Memory: ClassVar[type[Any]] = ClientState  # what a client remembers

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if {"aggregate", "weigh"} & vars(cls).keys() and "robust" not in vars(cls):
            cls.robust = ()  # who knows what it makes of the updates
        for base in vars(cls).get("__orig_bases__", ()):
            if get_origin(base) is Algorithm:
                for name, kind in zip(("State", "Message", "Reply", "Memory"), get_args(base), strict=True):
                    if isinstance(kind, type):  # not a type variable of a method that is generic itself
                        setattr(cls, name, kind)

    def __post_init__(self) -> None:
        ranges.check(self, "algorithm")
        check_kinds(self, "algorithm")
        both = self.local_steps is not None and self.local_epochs is not None
        self.require(not both, "local_epochs", "not together with local_steps", "leave one of them out")

    def require(self, ok: bool, name: str, allowed: str, fix: str) -> None:
        """A SettingError that names the hyper-parameter unless `ok`."""
        require(ok, f"algorithm.{name}", getattr(self, name), allowed, fix)

    # The client's side: `local` goes through these hooks -------------------------------------------------------------

    def step_size(self, round: int) -> float:
        """η of a round, the first being round 0; never so small that dividing by it fails."""
        self.require(not left_out(self, "lr"), "lr", "not chosen yet: a run does so for its clients", "set lr")
        return max(self.lr * self.lr_decay**round, min(self.lr, SMALLEST_RATE))

    def coefficient(self, broadcast: MessageT, privacy: DPSGD | None) -> Coefficient:
        """How much of each record's gradient is wanted; engines that compute many clients at once ask it too."""
        return PlainClip(privacy.clip if privacy else float("inf"))

    def question(self, memory: MemoryT) -> Question | None:
        """What one batch of the round is asked beside its gradient.

        The answer is in `here.loss`, `here.losses_within` and `here.norms_within`. The memory may say where a loss is
        clamped, never how much is asked: that is paid for beforehand.
        """
        return None

    def direction(self, here: LocalRound[MessageT, MemoryT], released: Released) -> Weights:
        """What a step follows: w ← w − η·direction. Corrections that read no record are added here, after the noise.

        If not overridden, the step reuses the gradient's memory. An override may keep the gradient.
        """
        return released.gradient

    def start(self, broadcast: MessageT, memory: MemoryT) -> Weights:
        """Where a client's steps start: at the broadcast weights, or at weights of its own."""
        return broadcast.weights

    def reply(self, here: LocalRound[MessageT, MemoryT], update: Weights) -> tuple[ReplyT, MemoryT]:
        """What the client uploads after its steps, `update` being what they add up to, and what it remembers."""
        upload: ReplyT = self.Reply(here.client.name, here.client.records, update)
        return upload, here.memory

    def local(self, broadcast: MessageT, memory: MemoryT, client: Client) -> tuple[ReplyT, MemoryT]:
        """A client's round: its steps, then what it uploads, and its new memory."""
        batches, rate = list(self.batches(broadcast, client)), self.step_size(broadcast.round)
        here = LocalRound(broadcast, memory, client, rate, len(batches), origin=self.start(broadcast, memory))
        return self.reply(here, self.descend(here, batches))

    def descend(self, here: LocalRound[MessageT, MemoryT], batches: Sequence[Batch]) -> Weights:
        """w ← w − η·direction for every batch, from `here.origin`: what the steps add up to."""
        coefficient, question = self.coefficient(here.broadcast, here.client.privacy), self.question(here.before)
        asked = -1 if question is None else 0 if question.batch == "first" else len(batches) - 1
        times = w.multiply_ if type(self).direction is Algorithm.direction else w.multiply
        update: Weights | None = None
        for here.step, batch in enumerate(batches):
            if update is not None:
                here.weights = w.add(here.origin, update)
            if question is not None and here.step == asked:
                released = here.ask(batch, question, coefficient)
            else:
                released = batch.release(here.weights, coefficient=coefficient)
            direction = self.direction(here, released)
            if update is None:
                update = times(direction, -here.rate)
            else:
                w.add_(update, direction, scale=-here.rate)
        return w.zeros_like(here.origin) if update is None else update

    def batches(self, broadcast: MessageT | None, client: Client) -> Iterator[Batch]:
        """The round's batches of one client, as the hyper-parameters say."""
        if client.privacy is not None:
            steps = self.passes * self.private_steps(broadcast, client.privacy)
            return client.batches(steps=steps, epochs=None, batch_size=self.batch_size)
        if self.local_steps is not None:
            return client.batches(steps=self.passes * self.local_steps, epochs=None, batch_size=self.batch_size)
        return client.batches(steps=None, epochs=self.passes * (self.local_epochs or 1), batch_size=self.batch_size)

    def memory(self) -> MemoryT:
        """A client's memory before its first round."""
        memory: MemoryT = self.Memory()
        return memory

    # What a private round costs --------------------------------------------------------------------------------------

    def check_privacy(self, privacy: DPSGD | None) -> None:
        """Raises where the method exists only with, or only without, privacy."""

    def private_steps(self, broadcast: MessageT | None, privacy: DPSGD) -> int:
        """K, the batches of one pass of a private round: E epochs are E·⌈1/q⌉ of them."""
        if self.local_epochs is not None:
            return self.local_epochs * -int(-1 // privacy.q)
        return self.local_steps or 1

    def joint_event(self, privacy: DPSGD) -> Event:
        """The batch of a round that releases most: its gradient, and what `question` asks of it."""
        asked = self.question(self.memory()) or Question()
        loss = asked.loss_bound is not None
        return privacy.event(losses=int(loss), counts=int(loss and asked.losses_within) + int(asked.norms_within))

    def events(self, broadcast: MessageT | None, privacy: DPSGD) -> tuple[Event, ...]:
        """Every event of one round, known before it: K − 1 gradients and one joint event."""
        steps = self.passes * self.private_steps(broadcast, privacy)
        plain, joint = privacy.event(), self.joint_event(privacy)
        if joint == plain:
            return (replace(plain, count=steps),)
        return (joint,) if steps == 1 else (replace(plain, count=steps - 1), joint)

    def noise_in(self, broadcast: MessageT, privacy: DPSGD | None, records: int, size: int) -> float:
        """What noise adds to ‖w_i − w_t‖² on average: (ησC/(q·n_i))² per step and weight. All of it is public."""
        if privacy is None:
            return 0.0
        clip, steps = self.coefficient(broadcast, privacy).clip, self.private_steps(broadcast, privacy)
        rate = self.step_size(broadcast.round)
        return steps * size * (rate * privacy.noise * clip / (privacy.q * records)) ** 2

    # The server's side -----------------------------------------------------------------------------------------------

    def init(self, weights: Weights, population: Population, privacy: DPSGD | None) -> StateT:
        """The server's state before round 0, from what is public."""
        state: StateT = self.State(0, weights, population)
        return state

    def broadcast(self, state: StateT) -> MessageT:
        """What the round's clients receive: the fields of the state that the message has too."""
        message: MessageT = self.Message(**{field.name: getattr(state, field.name) for field in fields(self.Message)})
        return message

    def weigh(self, state: StateT, upload: ReplyT) -> float:
        """ω_i, what an upload counts for in the mean, up to a common factor."""
        return upload.weight

    def aggregate(self, state: StateT, uploads: Iterable[ReplyT]) -> StateT:
        """The new state: w_t + Σ ω_i (w_i − w_t)/Σ ω_i over those that took part. Uploads are read once, in order."""
        mean = Mean(state.weights)
        for upload in uploads:
            mean.add(upload.update, self.weigh(state, upload))
        return replace(state, round=state.round + 1, weights=mean.added_to(state.weights))

    def check_robust(self, rule: str) -> None:
        """Raises where this `server.robust` cannot take the place of the method's mean."""
        only = f"only {' or '.join(self.robust)} fits" if self.robust else "its server does more than take a mean"
        fix = "leave it out, or take algorithm.name = fedavg, fedprox, fedfdp, ditto or mrmtl"
        require(rule in self.robust, "server.robust", rule, f"not for {type(self).__name__}: {only}", fix)

    def done(self, state: StateT) -> bool:
        """Whether the method itself ends the run, before the rounds or the budget do."""
        return False

    # What others ask of a method -------------------------------------------------------------------------------------

    def released(self) -> dict[str, str]:
        """The fields of an upload that are made of a client's records, each with what it means."""
        told = [field for field in fields(self.Reply) if field.name not in PUBLIC]
        return {field.name: field.metadata.get("meaning", "released after noise") for field in told}

    def holds(self, weights: Weights, memory: MemoryT) -> Weights:
        """The model of the client with this memory: the released weights, or its own where the method is `personal`."""
        return weights

    def loss_of(self, upload: ReplyT) -> float | None:
        """The loss that an upload releases; None where it releases none."""
        return None

    def loss_bound_after(self, loss: float | None) -> float:
        """C_l that a client will use next, derived from the last loss it released; 0 if that does not tell."""
        asked = self.question(self.memory())
        return 0.0 if asked is None else asked.loss_bound or 0.0

    def with_loss(self, loss: float) -> Self:
        """A copy that takes `loss` for F(w_0), for estimates (`theory/estimates.py`)."""
        return self

    def advice(self, classes: int | None) -> tuple[str, ...]:
        """What is still missing for records of so many classes (None: regression), for `fedfdp data check`."""
        return ()

    def grid(self) -> dict[str, tuple[float, ...]]:
        """What `fedfdp tune` tries where no grid is given: values for each setting."""
        return {"lr": (0.5 * self.lr, 1.0 * self.lr, 2.0 * self.lr)}

    def without_idle(self) -> Self:
        """A copy with settings of no effect reset to their defaults: methods that compute the same are then equal."""
        return self
