"""Clients on other machines: the same rounds as the local engine's, over Flower.

What a node sends is checked before use. A node whose answer is wrong or late, or that is gone, is named and left out,
and the round goes on.
"""

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from fedfdp.algorithms.base import Algorithm, Broadcast, Upload
from fedfdp.core import records
from fedfdp.core import weights as w
from fedfdp.core.errors import DataError, RunError
from fedfdp.core.records import Weights
from fedfdp.engines.flower import checks
from fedfdp.engines.flower.accounts import Accounts
from fedfdp.engines.flower.evaluation import ReleasedLosses, RemoteEvaluator
from fedfdp.engines.flower.exchange import NoAnswerError
from fedfdp.engines.flower.messages import Answer, Question, one_line
from fedfdp.engines.flower.roster import HELLO_SECONDS, Roster
from fedfdp.engines.flower.settings import Flower
from fedfdp.fairness.performance import Performance
from fedfdp.privacy.accounting.events import History, history_of
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.training.protocols import Engine, EngineFacts, Standing

log = logging.getLogger("fedfdp.server")


@dataclass
class Arrivals:
    """Whose upload was used in which round, and what each node had spent: lines of a file that a resumed run reads.

    `run` names the run in every question, also after it was resumed.
    """

    path: Path | None
    run: str
    used: dict[int, list[str]] = field(default_factory=dict)

    def last(self, client: str, before: int | None = None) -> int:
        """The latest round, before this one if it is given, in which the client's upload was used; -1: none."""
        found = (r for r, names in self.used.items() if (before is None or r < before) and client in names)
        return max(found, default=-1)

    def record(self, round: int, names: list[str], spent: Mapping[str, object]) -> None:
        self.used[round] = names
        if self.path is not None:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(json.dumps({"run": self.run, "round": round, "used": names, "spent": spent}) + "\n")

    @classmethod
    def open(cls, path: Path | None, run: str, accounts: Accounts | None) -> "Arrivals":
        """Those of a new run, or of the interrupted one that left this file; a torn last line is passed over."""
        found = cls(path, run)
        for line in path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else ():
            try:
                entry = json.loads(line)
            except json.JSONDecodeError:
                continue
            found.run = entry["run"]
            found.used[entry["round"]] = entry["used"]
            if accounts is not None:
                for client, spent in entry["spent"].items():
                    accounts.report(client, json.dumps(spent), past=True)
        return found


class FlowerEngine(Engine):
    """Runs a method's clients at the nodes of a roster."""

    saves_every_round = True  # a round that is asked again may be paid for again
    charges_here = False
    keeps_memories = False

    def __init__(
        self,
        roster: Roster,
        algorithm: Algorithm,
        template: Weights,
        *,
        privacy: DPSGD | None,
        performance: Performance,
        terms: str,
        settings: Flower,
        arrivals: Arrivals,
        accounts: Accounts | None,
        narrow: Mapping[str, Weights] = MappingProxyType({}),
    ) -> None:
        """`template`: what leaves a node of the full model. `narrow`: the same of nodes whose model is narrower."""
        self.narrow = narrow
        self.roster, self.algorithm, self.template, self.privacy = roster, algorithm, template, privacy
        self.terms, self.settings, self.arrivals, self.accounts = terms, settings, arrivals, accounts
        self.unable: set[str] = set()
        self.rejected: set[str] = set()  # whose reports of their ledgers cannot be taken
        self._hear_hellos()
        self.quorum = settings.enough
        self.standing: dict[str, Standing] = {name: self._standing_at_first(name) for name in roster.names}
        self.losses = ReleasedLosses(algorithm, privacy)
        self.evaluator = RemoteEvaluator(
            roster,
            self.losses,
            performance,
            run=arrivals.run,
            terms=terms,
            deadline=settings.deadline,
            last=arrivals.last,
            fit=self.fit,
        )
        self.limit = checks.most_bytes(algorithm.Reply, template)

    def round(
        self,
        broadcast: Broadcast,
        memories: Mapping[str, object],
        asked: Sequence[str] | None = None,
        *,
        watch: bool = False,
    ) -> Iterator[tuple[Upload, object]]:
        """The round's uploads, in the roster's order. Memories stay at the nodes: each comes with an empty one."""
        wanted = [name for name in self.roster.names if asked is None or name in asked]
        uploads = self._collect(broadcast, wanted)
        used = [name for name in wanted if name in uploads]
        if self.accounts is not None:
            self.accounts.keep()
        self.arrivals.record(broadcast.round, used, self.accounts.to_dict() if self.accounts else {})
        for name in used:
            self.losses.note(uploads[name])
            yield uploads[name], self.algorithm.memory()

    def _standing_at_first(self, name: str) -> Standing:
        if name in self.roster.hellos and name not in self.rejected:
            return Standing("here")
        return Standing("missing", self.roster.refused.get(name, "it has not come yet"))

    def _stands(
        self,
        name: str,
        state: Literal["here", "late", "refused", "left out", "out of budget"],
        round: int,
        why: str = "",
    ) -> None:
        """Notes how a node stands after an answer, or after waiting for one in vain."""
        self.standing[name] = Standing(state, one_line(why), round + 1)
        self._heard()

    def _heard(self) -> None:
        if self.listener is not None:
            self.listener()

    def facts(self) -> EngineFacts:
        """Which nodes gave out what no ε covers, and where a ledger claims another ε."""
        return EngineFacts(
            summary={"engine": "flower", "evaluated_clients": self.evaluator.answered},
            evaluated=self.evaluator.opted_in(),
            remarks=(*self.accounts.differences(), *self.accounts.unsaid()) if self.accounts else (),
            unnoised=self.accounts.without_noise() if self.accounts else {},
        )

    def settle(self) -> None:
        """Asks all nodes that are there what they have spent: also those that were late, or never asked."""
        if self.accounts is not None:
            self.roster.refresh(all_within=min(self.settings.deadline, HELLO_SECONDS))
            self._hear_hellos()
            self.accounts.keep()

    def ahead(self, more: History) -> Accounts | None:
        """Ledgers of nodes hold other runs too, so what is to come is counted on top of what they have."""
        return None if self.accounts is None else self.accounts.with_more(self.roster.names, more)

    def _hear_hellos(self) -> None:
        """Notes what nodes said of their ledgers. Who would pay for what is dropped is asked hello, and no round."""
        for name in list(self.roster.spent):
            if wrong := self._reported(name, self.roster.spent.pop(name)):
                self.rejected.add(name)
                self.roster.turn_away(name, str(wrong))
            else:
                self.rejected.discard(name)
                self.roster.refused.pop(name, None)

    def _reported(self, name: str, spent: str) -> DataError | None:
        """Notes what a node says it has spent; returns what is wrong with that."""
        try:
            if self.accounts is not None:
                self.accounts.report(name, spent)
        except DataError as error:
            return error
        return None

    def fit(self, name: str, weights: Weights) -> Weights:
        """What this node gets of the server's weights: all of them, or its slices."""
        return w.assembled(self.narrow[name], weights) if name in self.narrow else weights

    def _collect(self, broadcast: Broadcast, wanted: Sequence[str]) -> dict[str, Upload]:
        """Asks until enough nodes have answered. The identical question again costs a node nothing."""
        record = records.to_bytes(broadcast)
        slices = {name: replace(broadcast, weights=self.fit(name, broadcast.weights)) for name in self.narrow}
        own = {name: records.to_bytes(message) for name, message in slices.items() if name in wanted}
        uploads: dict[str, Upload] = {}
        refusals: dict[str, str] = {}
        end = time.monotonic() + self.settings.wait
        while True:
            missing = [name for name in wanted if name not in uploads and name not in refusals]
            names = self._there(missing, self._needed(wanted) - len(uploads), end)
            by_id = {self.roster.exchange.ids[name]: name for name in names}
            questions = {
                node: self._question(name, broadcast.round, own.get(name, record)) for node, name in by_id.items()
            }
            for name in names:
                self.standing[name] = replace(self.standing[name], state="asked", why="")
            if self.accounts is not None and self.privacy is not None:
                self.accounts.asked(names, history_of(self.algorithm.events(broadcast, self.privacy)))
            ask = self.roster.exchange.ask(questions, deadline=self.settings.deadline, limit=self.limit)
            for node, answer in ask:
                self._receive(by_id[node], broadcast.round, answer, uploads, refusals)
            self.roster.again.update(refusals)  # the reason may be that it has other records than it declared
            if len(uploads) >= self._needed(wanted):
                return uploads
            if len(set(wanted) - set(refusals) - self.unable) < self._needed(wanted):
                reasons = "; ".join(f"{name}: {reason}" for name, reason in refusals.items())
                raise RunError(f"round {broadcast.round + 1} was refused ({reasons}); agree with the nodes' owners")

    def _needed(self, wanted: Sequence[str]) -> int:
        """How many uploads the round needs, of those who can still pay."""
        return min(self.settings.enough, len(set(wanted) - self.unable))

    def _there(self, names: Sequence[str], least: int, end: float) -> list[str]:
        """The nodes that are connected, once at least `least` of them can pay; waits for that until `end`."""
        while True:
            self.roster.refresh()
            self._hear_hellos()
            found = self.roster.ready(names)
            for name in set(names) - set(found):
                if self.standing[name].state in ("here", "asked", "missing"):
                    why = self.roster.refused.get(name, "it is not connected")
                    self.standing[name] = replace(self.standing[name], state="missing", why=why)
            if len(set(found) - self.unable) >= least:
                return found
            if len(set(names) - self.unable - self.rejected) < least:  # no use to wait: they are here
                reasons = "; ".join(f"{name}: {self.roster.refused[name]}" for name in sorted(self.rejected))
                raise RunError(f"flower.quorum: too few nodes can take part ({reasons}); agree with the nodes' owners")
            self._heard()
            if time.monotonic() > end:
                gone = ", ".join(sorted(set(names) - set(found)))
                raise RunError(
                    f"flower.wait = {self.settings.wait:g}: too few nodes for a round (missing: {gone}); "
                    "start them and continue with --resume"
                )
            time.sleep(0.2)

    def _question(self, name: str, round: int, record: bytes) -> Question:
        last = self.arrivals.last(name, round)
        seen = self.accounts.seen(name) if self.accounts is not None else 0
        declared = self.roster.hellos[name].records
        return Question("train", self.arrivals.run, self.terms, round, last, record, seen, declared)

    def _receive(
        self, name: str, round: int, answer: Answer | DataError, uploads: dict[str, Upload], refusals: dict[str, str]
    ) -> None:
        """Puts an upload into `uploads`, or logs why there is none; in `refusals` too if asking again is no use."""
        try:
            if isinstance(answer, DataError):
                raise answer
            wrong = self._reported(name, answer.spent)  # whatever else it says
            if (answer.run, answer.round) != (self.arrivals.run, round):
                raise DataError(f"an answer to round {answer.round + 1} of another question")
            if answer.status not in ("ok", "unable"):
                refusals[name] = answer.reason
                self._stands(name, "refused", round, answer.reason)
                log.warning("%s refused round %s: %s", name, round + 1, answer.reason)
                return
            if wrong is not None:
                raise wrong
            if answer.status == "unable":
                self.unable.add(name)
                self._stands(name, "out of budget", round, answer.reason)
                log.warning("%s sits out round %s: %s", name, round + 1, answer.reason)
                return
            template = self.narrow.get(name, self.template)
            upload: Upload = checks.read(self.algorithm.Reply, answer.record, template)
            checks.check_upload(upload, client=name, records=self.roster.hellos[name].records)
        except DataError as error:
            self._drop(name, round, str(error), late=isinstance(error, NoAnswerError))
            if isinstance(answer, Answer):  # asked again, it would say the same
                refusals[name] = one_line(str(error))
            return
        self.unable.discard(name)
        refusals.pop(name, None)
        uploads[name] = upload
        self._stands(name, "here", round)

    def _drop(self, name: str, round: int, reason: str, *, late: bool = False) -> None:
        log.warning("%s is left out of round %s: %s", name, round + 1, reason)
        self._stands(name, "late" if late else "left out", round, reason)
