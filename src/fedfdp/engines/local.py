"""All clients in this process, one after the other or many in one pass. A method cannot tell the difference.

A client's ledger is charged before its batch is drawn; a client that cannot afford the round does not take part.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedfdp.algorithms import algorithm_settings
from fedfdp.algorithms.base import Algorithm, Broadcast, Upload
from fedfdp.algorithms.parts import Kept
from fedfdp.core import ranges
from fedfdp.core import weights as w
from fedfdp.core.errors import BudgetError, FedFDPError
from fedfdp.core.identity import identity
from fedfdp.core.records import digest
from fedfdp.core.trees import Inputs
from fedfdp.core.weights import Weights
from fedfdp.data import ClientData, Federation
from fedfdp.data.shard import inputs_at
from fedfdp.models.learner import Learner
from fedfdp.native.threads import ahead
from fedfdp.privacy.accounting import Event
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.privacy.ledger import LedgerBook
from fedfdp.privacy.noise.randomness import Key, Randomness
from fedfdp.training.client import Answer, LocalClient, Prefetched, noise_gradients_, unnoised
from fedfdp.training.protocols import Engine

WAVE_RECORDS = 4096  # the records whose clipped sums are computed in one pass
WAVE_BYTES = 128 * 2**20  # the memory that the sums of one pass may take
SMALL_MODEL = 2**17  # up to so many weights, the noise of some clients is drawn while others go on
NOISED_NUMBERS = 2**20  # how many numbers of small models are noised at a time


class LocalEngine(Engine):
    """Runs a method's clients on a federation that is held in memory."""

    def __init__(
        self,
        federation: Federation,
        learner: Learner,
        algorithm: Algorithm,
        *,
        privacy: DPSGD | None,
        randomness: Randomness,
        book: LedgerBook | None,
        fused: bool = True,
    ) -> None:
        self.federation, self.learner, self.algorithm = federation, learner, algorithm
        self.privacy, self.randomness, self.book = privacy, randomness, book
        self._method = identity(type(algorithm))
        # A method, and for each learner the digest by `_how_computed`.
        self._computed: tuple[Algorithm | None, dict[int, str]] = (None, {})
        by_record = federation.clients[0].train.unit is None  # one unit for all
        alike = learner.first is None  # otherwise each client's model is put together by itself
        self.fused = fused and privacy is not None and not learner.stochastic and by_record and alike
        self._places = {name: place for place, name in enumerate(federation.names)}
        self.unable: set[str] = set()
        self.local_losses: dict[str, float] = {}  # of the clients' own updated models, where a round was watched

    def round(
        self,
        broadcast: Broadcast,
        memories: Mapping[str, object],
        asked: Sequence[str] | None = None,
        *,
        watch: bool = False,
    ) -> Iterator[tuple[Upload, object]]:
        """As `Engine.round`, in the federation's order."""
        for wave in self.charged(broadcast, memories, asked):
            yield from self.answers(wave, watch=watch)

    def charged(
        self, broadcast: Broadcast, memories: Mapping[str, object], asked: Sequence[str] | None = None
    ) -> Iterator["Wave"]:
        """The clients that are asked and can pay, in groups that are computed together. Their ledgers were charged."""
        self.local_losses = {}
        if self.privacy is not None:
            self._check(broadcast)
        usual = self._request(broadcast, self.learner) if self.privacy else None
        fresh = self.algorithm.memory()  # of a client that remembers nothing yet
        for wave in self._waves(self._clients(asked)):
            message, request = broadcast, usual
            if (learner := self.learner.of(wave[0].name)) is not self.learner:  # models that differ go one by one
                message = self._narrowed(broadcast, learner)
                request = self._request(message, learner) if self.privacy else None
            clients = []
            for data in wave:
                memory = memories.get(data.name, fresh)
                if client := self._charged(data, message.round, memory, request):
                    clients.append((client, memory))
            yield Wave(clients, message, request)

    def _clients(self, asked: Sequence[str] | None) -> Sequence[ClientData]:
        """Those that are asked, in the federation's order. Of a million clients, only they are looked at."""
        places = self._places
        which = range(len(places)) if asked is None else sorted({places[name] for name in asked if name in places})
        return [self.federation.clients[place] for place in which]

    def answers(self, wave: "Wave", *, watch: bool = False) -> Iterator[tuple[Upload, object]]:
        """Upload and new memory of each client of a wave."""
        alike = all(self.algorithm.start(wave.message, memory) is wave.message.weights for _, memory in wave.clients)
        together = self.fused and len(wave.clients) > 1 and alike
        who = [client for client, _ in wave.clients]
        ready = self._prefetch(who, wave.message) if together else iter(who)
        for client, (_, memory) in zip(ready, wave.clients, strict=True):
            yield self._run(client, memory, wave.message, wave.request, watch)

    def _check(self, broadcast: Broadcast) -> None:
        """Refuses numbers out of range before a record is read or a ledger charged, by public values alone."""
        ranges.check(broadcast, type(broadcast).__name__)
        ranges.BOUND.check("clip", self.algorithm.coefficient(broadcast, self.privacy).clip)

    def _narrowed(self, broadcast: Broadcast, learner: Learner) -> Broadcast:
        """The message for a client whose model is narrower: its slices."""
        assert learner.first is not None
        mine = {name: tensor for name, tensor in learner.first.items() if name in broadcast.weights}
        return replace(broadcast, weights=w.assembled(mine, broadcast.weights))

    def _request(self, broadcast: Broadcast, learner: Learner) -> "Request":
        assert self.privacy is not None
        if self._computed[0] is not self.algorithm:
            self._computed = self.algorithm, {}
        if id(learner) not in self._computed[1]:
            self._computed[1][id(learner)] = self._how_computed(self.privacy, learner)
        return Request(broadcast, self.algorithm.events(broadcast, self.privacy), self._computed[1][id(learner)])

    def _how_computed(self, p: DPSGD, learner: Learner) -> str:
        """A digest of all that decides a client's answer to a broadcast, except for its records and its memory."""
        method = [algorithm_settings(self.algorithm), self._method]
        step = [p.q, p.clip, p.noise, p.sigma_loss, p.sigma_count]
        how = [learner.identity, learner.device.type, self.fused]  # the last two decide how sums are rounded
        return digest([method, step, how], travelled=True)

    def _waves(self, clients: Sequence[ClientData]) -> Iterator[Sequence[ClientData]]:
        """The clients in groups whose batches and sums fit in memory together."""
        if not self.fused or self.privacy is None:
            yield from ([client] for client in clients)
            return
        model_bytes = 4 * w.size(self.learner.initial())
        wave: list[ClientData] = []
        records = 0.0
        for client in clients:
            expected = self.privacy.q * len(client.train)
            full = records + expected > WAVE_RECORDS or (len(wave) + 1) * model_bytes > WAVE_BYTES
            if wave and full:
                yield wave
                wave, records = [], 0.0
            wave.append(client)
            records += expected
        if wave:
            yield wave

    def _charged(self, data: ClientData, round: int, memory: object, request: "Request | None") -> LocalClient | None:
        """The client, after its ledger was charged for the round; None if its budget does not allow it."""
        if self.privacy is not None:
            of_method = memory.memory if isinstance(memory, Kept) else memory
            ranges.check(of_method, type(of_method).__name__)
        attempt, asked = 0, ""
        repeatable = self.randomness.repeatable
        if request is not None:
            asked = request.digest(memory, data.train.digest if repeatable else "")
        if self.book is not None and request is not None:
            try:
                attempt = self.book.ledger(data.name).charge(round, asked, request.events, replayable=repeatable)
            except BudgetError:
                self.unable.add(data.name)
                return None
            self.unable.discard(data.name)
        return LocalClient(
            data,
            self.learner.of(data.name),
            privacy=self.privacy,
            randomness=self.randomness,
            round=round,
            attempt=attempt,
            request=asked,
        )

    def _prefetch(self, clients: Sequence[LocalClient], broadcast: Broadcast) -> Iterator[LocalClient]:
        """The clients, each with its first answer at the broadcast weights, from one pass over all their batches.

        With small models, noise for later clients is drawn on other threads while earlier clients go on.
        """
        batches = [client.poisson(0) for client in clients]
        x, y = self._records_of(clients, batches)
        sizes = [len(batch) for batch in batches]
        coefficient = self.algorithm.coefficient(broadcast, self.privacy)
        key = Key("", broadcast.round, clients[0].attempt, f"pass from {clients[0].name}", clients[0].request)
        with self.learner.randomly(self.randomness, key):
            before = torch.default_generator.get_state()
            total = self.learner.clipped(broadcast.weights, x, y, coefficient, sizes)
            drawn = not torch.equal(before, torch.default_generator.get_state())
        if drawn:  # the model draws random numbers; a client's must not depend on the others' batches
            self.fused = False
            yield from clients
            return
        weights = total.flat.shape[1]
        each = max(1, NOISED_NUMBERS // weights) if weights <= SMALL_MODEL else len(clients)
        some = [slice(first, first + each) for first in range(0, len(clients), each)]
        losses, norms = unnoised(total)
        stop = 0
        for part in ahead(lambda s: noise_gradients_(total.flat[s], total.sensitivity, clients[s]), some):
            for client, row, size in zip(clients[part], total.flat[part].unbind(), sizes[part], strict=True):
                its, stop = slice(stop, stop + size), stop + size
                gradient = Weights(total.shapes, (row,)).typed_as(broadcast.weights)
                answer = Answer(gradient, losses[its], norms[its])
                client.prefetched = Prefetched(broadcast.weights, coefficient, answer)
                yield client

    def _records_of(self, clients: Sequence[LocalClient], batches: Sequence[Tensor]) -> tuple[Inputs, Tensor]:
        held = zip(clients, batches, strict=True)  # in numpy, which is quicker with thousands of small pieces
        rows = torch.from_numpy(np.concatenate([c.data.train.index.numpy()[batch.numpy()] for c, batch in held]))
        return inputs_at(self.federation.x, rows), self.federation.y[rows]

    def _run(
        self, client: LocalClient, memory: object, broadcast: Broadcast, request: "Request | None", watch: bool
    ) -> tuple[Upload, object]:
        upload: Upload
        upload, memory = self.algorithm.local(broadcast, memory, client)
        if request is not None and not request.covers(client.released):
            raise FedFDPError(
                f"algorithm {type(self.algorithm).__name__} released more than its `events` declare "
                f"(noise multipliers {', '.join(str(event.sigmas) for event in client.released)}); "
                f"nothing was uploaded: correct `events` or `joint_event`"
            )
        if watch and client.last_positions is not None and len(client.last_positions):  # an empty batch has no loss
            x, y = client.data.train.take(client.last_positions)
            reached = self._reached(client, broadcast, upload, memory)
            with client.learner.randomly(self.randomness, client.key("watch")):
                self.local_losses[client.name] = float(client.learner.losses(reached, x, y).mean())
        return upload, memory

    def _reached(self, client: LocalClient, broadcast: Broadcast, upload: Upload, memory: object) -> Weights:
        """The client's own model after its round."""
        start = broadcast.weights
        if client.learner.first is not None:  # of a client whose model may be narrower
            start = w.assembled(upload.update, start)
        return client.learner.whole(self.algorithm.holds(w.add(start, upload.update), memory))


@dataclass(frozen=True)
class Wave:
    """Clients that are computed together, each with what it remembers; paid for."""

    clients: list[tuple[LocalClient, object]]
    message: Broadcast
    request: "Request | None"  # None without privacy


class Request:
    """What a round asks of a client and what that costs; clients differ only in what they remember and hold.

    `computed` says by which method, settings, model and loss the answer is made.
    """

    def __init__(self, broadcast: Broadcast, events: Sequence[Event], computed: str) -> None:
        self.events = tuple(events)
        self._asked = digest(broadcast, computed, travelled=True)
        self._known: dict[str, str] = {}  # digests of memories of a few numbers, which most clients share

    def digest(self, memory: object, records: str) -> str:
        """The digest of all that an answer depends on; `records` is that of the client's own records."""
        return hashlib.sha256(f"{self._with(memory)} {records}".encode()).hexdigest()

    def _with(self, memory: object) -> str:
        held = [getattr(memory, entry.name) for entry in fields(memory)] if is_dataclass(memory) else [memory]
        if not all(isinstance(value, int | float | str | None) for value in held):
            return digest(self._asked, memory, travelled=True)
        content = repr(held)
        if content not in self._known:
            self._known[content] = digest(self._asked, memory, travelled=True)
        return self._known[content]

    def covers(self, released: Sequence[Event]) -> bool:
        """Whether nothing left a client that its ledger was not charged for beforehand."""
        if len(released) == 1 and released[0] in self.events:
            return True
        budget: dict[tuple[float, tuple[float, ...]], int] = {}
        for event in self.events:
            budget[event.q, event.sigmas] = budget.get((event.q, event.sigmas), 0) + event.count
        for event in released:
            kind = (event.q, event.sigmas)
            budget[kind] = budget.get(kind, 0) - event.count
        return all(left >= 0 for left in budget.values())
