"""All clients in this process, one after the other or many in one pass. Methods cannot tell the difference.

A client's cost is in its ledger before its batch is drawn; one that cannot afford the round does not take part.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedfdp.algorithms import algorithm_settings
from fedfdp.algorithms.base import Algorithm
from fedfdp.core import ranges
from fedfdp.core import weights as w
from fedfdp.core.errors import BudgetError, FedFDPError
from fedfdp.core.identity import identity
from fedfdp.core.records import digest
from fedfdp.data import ClientData, Federation
from fedfdp.models.learner import Learner
from fedfdp.native.threads import ahead
from fedfdp.privacy.accounting import Event
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.privacy.ledger import LedgerBook
from fedfdp.privacy.noise.randomness import Key, Randomness
from fedfdp.training.client import Answer, LocalClient, Prefetched, exact, named_like, noise_gradients_

WAVE_RECORDS = 4096  # records whose clipped sums are computed in one pass …
WAVE_BYTES = 128 * 2**20  # … and the memory that the sums of a pass may take
SMALL_MODEL = 2**17  # weights; then the rest of a client's round takes longer than its noise
NOISED_NUMBERS = 2**20  # of small models, at a time


class LocalEngine:
    """Runs a method's clients on a federation held in memory."""

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
        self.privacy, self.book = privacy, book
        self._method = identity(type(algorithm))
        self._computed: tuple[Algorithm | None, str] = (None, "")
        self.randomness = randomness
        by_record = all(client.train.unit is None for client in federation.clients)
        self.fused = fused and privacy is not None and not learner.stochastic and by_record
        self.clients: Sequence[str] = [client.name for client in federation.clients]
        self.unable: set[str] = set()
        self.local_losses: dict[str, float] = {}  # of the clients' own updated models, where a round was watched

    def round(
        self, broadcast: Any, memories: Mapping[str, Any], asked: Sequence[str] | None = None, *, watch: bool = False
    ) -> Iterator[tuple[Any, Any]]:
        """Upload and new memory of each client that is asked (None: all) and can pay, in the federation's order."""
        self.local_losses = {}
        if self.privacy is not None:
            self._check(broadcast)
        request = self._request(broadcast) if self.privacy else None
        wanted = set(self.clients if asked is None else asked)
        for wave in self._waves([client for client in self.federation.clients if client.name in wanted]):
            clients = []
            for data in wave:
                memory = memories[data.name] if data.name in memories else self.algorithm.memory()
                if client := self._admit(data, broadcast.round, memory, request):
                    clients.append((client, memory))
            together = self.fused and len(clients) > 1
            who = [client for client, _ in clients]
            ready = self._prefetch(who, broadcast) if together else iter(who)
            for client, (_, memory) in zip(ready, clients, strict=True):
                yield self._run(client, memory, broadcast, request, watch)

    def _check(self, broadcast: Any) -> None:
        """Before a record is read or a ledger charged: numbers out of range are refused, from public values alone."""
        ranges.check(broadcast, type(broadcast).__name__)
        ranges.BOUND.check("clip", self.algorithm.coefficient(broadcast, self.privacy).clip)

    def _request(self, broadcast: Any) -> "Request":
        assert self.privacy is not None
        if self._computed[0] is not self.algorithm:
            self._computed = self.algorithm, self._how_computed(self.privacy)
        return Request(broadcast, self.algorithm.events(broadcast, self.privacy), self._computed[1])

    def _how_computed(self, p: DPSGD) -> str:
        """A digest of all that decides what a client answers to a broadcast, but for its records and its memory."""
        method = [algorithm_settings(self.algorithm), self._method]
        step = [p.q, p.clip, p.noise, p.sigma_loss, p.sigma_count]
        how = [self.learner.identity, self.learner.device.type, self.fused]  # the last two decide how sums are rounded
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

    def _admit(self, data: ClientData, round: int, memory: Any, request: "Request | None") -> LocalClient | None:
        """The client, once the round is paid for; None where it cannot be."""
        if self.privacy is not None:
            ranges.check(memory, type(memory).__name__)
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
            self.learner,
            privacy=self.privacy,
            randomness=self.randomness,
            round=round,
            attempt=attempt,
            request=asked,
        )

    def _prefetch(self, clients: Sequence[LocalClient], broadcast: Any) -> Iterator[LocalClient]:
        """The clients, each with its first answer at the broadcast weights, from one pass over all their batches.

        Of small models some clients are noised on other threads while others already go on.
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
        if drawn:  # what a client draws must not depend on the others' batches: its noise does not
            self.fused = False
            yield from clients
            return
        weights = total.flat.shape[1]
        each = max(1, NOISED_NUMBERS // weights) if weights <= SMALL_MODEL else len(clients)
        some = [slice(first, first + each) for first in range(0, len(clients), each)]
        losses, norms = exact(total)
        stop = 0
        for part in ahead(lambda s: noise_gradients_(total.flat[s], total.sensitivity, clients[s]), some):
            for client, row, size in zip(clients[part], total.flat[part].unbind(), sizes[part], strict=True):
                its, stop = slice(stop, stop + size), stop + size
                answer = Answer(named_like(broadcast.weights, row, total.shapes), losses[its], norms[its])
                client.prefetched = Prefetched(broadcast.weights, coefficient, answer)
                yield client

    def _records_of(self, clients: Sequence[LocalClient], batches: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        held = zip(clients, batches, strict=True)  # in numpy: thousands of small pieces
        rows = torch.from_numpy(np.concatenate([c.data.train.index.numpy()[batch.numpy()] for c, batch in held]))
        return self.federation.x[rows], self.federation.y[rows]

    def _run(
        self, client: LocalClient, memory: Any, broadcast: Any, request: "Request | None", watch: bool
    ) -> tuple[Any, Any]:
        upload, memory = self.algorithm.local(broadcast, memory, client)
        if request is not None and not request.covers(client.released):
            raise FedFDPError(
                f"algorithm {type(self.algorithm).__name__} released more than its `events` declare "
                f"(noise multipliers {', '.join(str(event.sigmas) for event in client.released)}); "
                f"nothing was uploaded: correct `events` or `joint_event`"
            )
        if watch and client.last_positions is not None and len(client.last_positions):  # no records, no loss
            x, y = client.data.train.take(client.last_positions)
            reached = w.add(broadcast.weights, upload.update)
            with self.learner.randomly(self.randomness, client.key("watch")):
                self.local_losses[client.name] = float(self.learner.losses(reached, x, y).mean())
        return upload, memory


class Request:
    """What a round asks of a client and what that costs: the same for all, but for what each remembers and holds.

    `computed` says by which method, settings, model and loss the answer is made.
    """

    def __init__(self, broadcast: Any, events: Sequence[Event], computed: str) -> None:
        self.events = tuple(events)
        self._asked = digest(broadcast, computed, travelled=True)
        self._known: dict[str, str] = {}  # by content, where a memory is a few numbers: most clients' are equal

    def digest(self, memory: Any, records: str) -> str:
        """Of all that an answer depends on; `records` is the digest of the client's own."""
        return hashlib.sha256(f"{self._with(memory)} {records}".encode()).hexdigest()

    def _with(self, memory: Any) -> str:
        held = [getattr(memory, entry.name) for entry in fields(memory)]
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
