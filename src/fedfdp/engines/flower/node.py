"""A data holder's side: it answers questions within its owner's policy, and charges its own ledger before it computes.

Ledger and memory are on its disk before an answer leaves. It never runs code that came over the network, and what goes
wrong while records are read is told to its owner alone: an error's text may hold what is in them.
"""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

import safetensors.torch
from torch import nn

from fedfdp.algorithms.base import Algorithm, Broadcast
from fedfdp.core import files, records
from fedfdp.core.errors import BudgetError, DataError, RunError, SettingError
from fedfdp.core.records import Weights
from fedfdp.core.trees import is_plain
from fedfdp.data import Federation
from fedfdp.engines.flower import checks, memory
from fedfdp.engines.flower.agreed import Agreed, agreed
from fedfdp.engines.flower.book import LEDGER, open_book
from fedfdp.engines.flower.holding import Holding
from fedfdp.engines.flower.judging import Evaluations, check_apart
from fedfdp.engines.flower.messages import COULD_NOT, Answer, Hello, Judge, Question, Status
from fedfdp.engines.flower.policy import NodeConfig, RefusalError
from fedfdp.engines.flower.sides import Sides
from fedfdp.engines.flower.unnoised import ASSUMED, Counted
from fedfdp.engines.flower.witness import Witness
from fedfdp.features.mapped import mapped
from fedfdp.models.pretrained import PREFIX, check_words, outline
from fedfdp.privacy.accounting import delta_warning
from fedfdp.privacy.ledger.periods import Today, utc_today

log = logging.getLogger("fedfdp.node")

STOPPED, OWN_MODEL = "stopped", "model.safetensors"

# Errors whose text may be sent while no record was read: it depends on the question and on what is public.
_SAYABLE = (RefusalError, SettingError, DataError, BudgetError)


def write_stop(folder: Path, why: str) -> None:
    """Lets the node of this folder take part in nothing until its owner has looked. `why` holds no text of an error."""
    log_of = "see node.log, or what a stock SuperNode printed"
    text = f"{why}; {log_of}. Delete this file, and start the node again, to let it take part again.\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files.write_whole(folder / STOPPED, text.encode())
    except OSError:
        log.exception("cannot write %s", folder / STOPPED)


class Node(AbstractContextManager["Node"]):
    """One data holder, with its folder open: only one process at a time can have it."""

    def __init__(self, config: NodeConfig, held: Holding | Federation, *, today: Today = utc_today) -> None:
        """`held`: the owner's records; a federation has its test part already. `today`: dates the charges."""
        self.config, self.policy, self.name = config, config.policy, config.name
        self.folder = Path(config.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.evaluations = Evaluations(self.folder, self.policy.evaluations, config.second)
        self.witness = Witness(config.second, self.folder / LEDGER)
        self.witness.check()
        held = held if isinstance(held, Holding) else Holding(held)
        self.book = open_book(config, today, held.federation.unit)
        self.ledger = self.book.ledger(self.name)
        self.witness.follow()
        try:
            self.federation = self._divided(held)
            self._check_tables()
            self.unnoised = Counted(self.folder, config.second, today)
            self._restored = any(entry.run == ASSUMED for entry in self.book.entries())
            self.remembered = memory.load(self.folder)
        except BaseException:
            self.book.close()
            raise
        if self.book.charged() < self.remembered.charged:
            self.book.close()
            shown = f"shows {self.book.charged()} of at least {self.remembered.charged} charges"
            fix = "put the right one back, or declare it with: fedfdp node restored NODE.toml"
            raise RunError(f"{self.folder / LEDGER} {shown}: missing or an older copy; {fix}")
        if warning := delta_warning(self.policy.delta, self.data.size):
            log.warning("policy.%s", warning)
        self.stopped = (self.folder / STOPPED).exists()
        if self.stopped:
            log.warning("%s refuses rounds: read %s, and delete it", self.name, self.folder / STOPPED)
        self._agreed: dict[str, Agreed] = {}

    def _divided(self, held: Holding) -> Federation:
        """The records, each for training or for the test as ever before. It is on the disk before a question comes."""
        sides = Sides.load(self.folder, used=bool(self.book.charged() or self.evaluations.answered))
        federation = sides.divided(held.federation, held.fraction, held.whom)
        (self.data,) = federation.clients
        if self.policy.evaluate:
            sides.check(self.data)
            check_apart(self.data, split_given=held.split_given)
        sides.save(self.folder)
        return federation

    def _check_tables(self) -> None:
        """Raises, to the owner, where the records have a token that a model they allow has no row for.

        It is not looked at when a coordinator asks: whether it was so would tell of a single record, and cost nothing.
        """
        for name in self.policy.models:
            if not name.startswith(PREFIX):
                continue
            try:
                model = outline(name, self.federation.task)
            except SettingError as error:
                log.warning("%s: rounds with this model are refused", error)
            else:
                check_words(model, self.federation.x)

    def __exit__(self, *_: object) -> None:
        self.book.close()

    def answer(self, question: Question) -> Answer:
        """The answer to any question; one that is not allowed, or makes no sense, is refused with the reason.

        It is made in two steps. The first depends on the question and on what is public, so its errors may be sent; of
        the records it makes features at most, and says nothing of what fails there. The second reads records: whatever
        goes wrong there, the coordinator is told that the node could not answer, and the node takes part in no further
        round until its owner has looked. That anything went wrong may depend on a record: a coordinator that could
        provoke it round after round would learn a bit each time.
        """
        try:
            compute = self._prepare(question)
        except _SAYABLE as refused:
            log.warning("refused %s, round %s: %s", question.kind, question.round, refused)
            return self._reply(question, status="refused", reason=str(refused))
        except Exception:
            log.exception("could not make sense of %s, round %s", question.kind, question.round)
            return self._reply(question, status="refused", reason=COULD_NOT)
        try:
            return compute()
        except Exception as error:
            log.exception("failed at %s, round %s", question.kind, question.round)
            self._stop(f"{question.kind}, round {question.round}: {type(error).__name__}")
            return self._reply(question, status="refused", reason=COULD_NOT)

    def _stop(self, why: str) -> None:
        self.stopped = True
        write_stop(self.folder, why)

    def _prepare(self, question: Question) -> Callable[[], Answer]:
        """What is left to compute, once the question was found to be allowed."""
        if question.kind == "hello":
            return lambda: self._reply(question, self._hello())
        if self.stopped:
            raise RefusalError(COULD_NOT)
        if question.kind == "evaluate" and not self.policy.evaluate:
            raise RefusalError("policy.evaluate does not allow evaluation on raw records")
        if question.seen > self.book.charged():
            shown = f"{question.seen} charges of this node were seen, its ledger shows {self.book.charged()}"
            raise RefusalError(f"{shown}: an older copy? Its owner declares it: fedfdp node restored")
        if question.records not in (0, self.data.size):  # the upload would be dropped, and paid for
            raise RefusalError(
                f"it has {self.data.size} records now, {question.records} were declared; ask it hello again"
            )
        agreed = self._agree(question.terms)
        if question.kind == "evaluate":
            return self._prepare_judging(question, agreed)
        return self._prepare_training(question, agreed)

    def _reply(self, question: Question, record: bytes = b"", status: Status = "ok", reason: str = "") -> Answer:
        policy = self.policy
        rule = {"accountant": policy.accountant, "budget": policy.epsilon, "delta": policy.delta}
        unnoised = replace(self.unnoised.found, restored=self._restored).told()
        spent = json.dumps({"history": self.ledger.history, **rule, "unnoised": unnoised})
        return Answer(status, question.run, question.round, reason=reason, spent=spent, record=record)

    def _hello(self) -> bytes:
        """What the node says of itself; no terms are needed for it."""
        whole = self.federation
        said = Hello(
            self.name,
            self.data.size,
            whole.input_shape,
            whole.classes,
            whole.outputs,
            self.policy.evaluate,
            whole.tokens,
            whole.unit,
            self.config.width,
            "" if is_plain(whole.form) else json.dumps(whole.form),
            whole.declared if isinstance(whole.declared, str) else whole.declared.name,
        )
        return records.to_bytes(said)

    def _agree(self, text: str) -> Agreed:
        if text not in self._agreed:
            found = agreed(text, self.config, self.federation, mapped=self._mapped, book=self.book)
            self._agreed = {text: found}  # of the latest run only
        return self._agreed[text]

    def _mapped(self, front: nn.Module) -> Federation:
        """The holder's records as features, kept in its own folder."""
        with self._untold("features"):
            x = mapped(front, self.federation.x, folder=self.folder / "features", progress=log.info)
            return self.federation.with_inputs(x)

    @contextmanager
    def _untold(self, what: str) -> Iterator[None]:
        """Records are read within it before a question is answered: what fails is told to their owner alone."""
        try:
            yield
        except Exception as error:
            log.exception("failed before an answer: %s", what)
            self._stop(f"{what}: {type(error).__name__}")
            raise RefusalError(COULD_NOT) from None

    def _prepare_training(self, question: Question, agreed: Agreed) -> Callable[[], Answer]:
        engine, method = agreed.engine, agreed.engine.algorithm
        broadcast = checks.read(method.Message, question.record, agreed.template)
        if broadcast.round != question.round:
            raise DataError(f"a broadcast of round {broadcast.round} in a question about round {question.round}")
        known, before = self._settled(question, method)
        request = records.digest(broadcast, question.run, question.terms, before)
        if request == known.request:  # it gets the same bytes again: nothing new is released
            log.info("round %s: answered again, free", question.round)
            return lambda: self._reply(question, known.upload)
        if engine.privacy is not None:
            events = method.events(broadcast, engine.privacy)
            self.policy.check_price(events, engine.privacy, method, self.ledger)
            if not engine.randomness.repeatable and (short := self.ledger.short_of(events)):
                return lambda: self._unable(question, short)
        return lambda: self._train(question, agreed, broadcast, before, (known.run, request))

    def _settled(self, question: Question, method: Algorithm) -> tuple[memory.Remembered, object]:
        """What is known of the question's run, and the method's memory after the last upload that was used."""
        run = records.digest(question.run, question.terms)  # a memory is valid for one run under one set of terms
        known = self.remembered.settled(run, question.last)
        return known, records.from_bytes(method.Memory, known.memory) if known.memory else method.memory()

    def _train(
        self, question: Question, agreed: Agreed, broadcast: Broadcast, before: object, key: tuple[str, str]
    ) -> Answer:
        self.ledger.run = f"{question.run} {agreed.engine.algorithm.name}"
        if agreed.engine.privacy is None:  # no ledger will show it
            self.unnoised.note(question.run, agreed.engine.algorithm.name)
        uploaded = list(agreed.engine.round(broadcast, {self.name: before}))
        if not uploaded:
            engine = agreed.engine
            assert engine.privacy is not None
            return self._unable(question, self.ledger.short_of(engine.algorithm.events(broadcast, engine.privacy)))
        self.witness.follow()
        ((upload, after),) = uploaded
        record = records.to_bytes(upload)
        self.remembered = memory.Remembered(
            run=key[0],
            round=question.round,
            request=key[1],
            charged=self.book.charged(),
            memory=records.to_bytes(before),
            upload=record,
            next=records.to_bytes(after),
        )
        memory.save(self.folder, self.remembered)
        self._keep_own(agreed, broadcast.weights, after)
        log.info("round %s: uploaded, ε = %.4f used up so far", question.round, self.ledger.epsilon_so_far())
        return self._reply(question, record)

    def _keep_own(self, agreed: Agreed, weights: Weights, after: object) -> None:
        """Writes the holder's own model, which no message holds, for its use by `fedfdp predict`."""
        method = agreed.engine.algorithm
        if method.personal:
            own = method.holds(weights, after)
            files.write_whole(self.folder / OWN_MODEL, safetensors.torch.save(agreed.engine.learner.state_with(own)))

    def _unable(self, question: Question, short: str) -> Answer:
        reason = f"{short} does not allow another round"
        log.warning("round %s: %s", question.round, reason)
        return self._reply(question, status="unable", reason=reason)

    def _prepare_judging(self, question: Question, agreed: Agreed) -> Callable[[], Answer]:
        asked = checks.read(Judge, question.record, agreed.template)
        self.evaluations.check()

        method = agreed.engine.algorithm
        weights, learner = asked.weights, agreed.engine.learner
        if method.personal:
            weights = method.holds(weights, self._settled(question, method)[1])

        def judged() -> Answer:
            said = self.evaluations.judge(learner.whole(weights), learner, agreed.engine.federation)
            log.info("evaluation %s of at most %s answered", said.answered, self.policy.evaluations)
            return self._reply(question, records.to_bytes(said))

        return judged
