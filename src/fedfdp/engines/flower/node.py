"""A data holder's side: it answers questions within its owner's policy, and pays its own ledger before it computes.

Ledger and memory are on its disk before an answer leaves. It never runs code that came over the network.
"""

import importlib
import json
import logging
import math
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from fedfdp import config as configs
from fedfdp import records
from fedfdp.data import Federation
from fedfdp.data.files.own import read_records
from fedfdp.data.holders import single_holder
from fedfdp.engines.flower import checks, memory
from fedfdp.engines.flower.messages import Answer, Hello, Judge, Judged, Question
from fedfdp.engines.flower.policy import NodeConfig, NodeData, RefusalError
from fedfdp.engines.flower.terms import Terms, build_model, frozen_digest, learner_of, outputs_of
from fedfdp.engines.local import LocalEngine
from fedfdp.errors import DataError, FedFDPError, RunError, SettingError
from fedfdp.evaluation import Evaluator
from fedfdp.fairness.metrics import measures
from fedfdp.privacy.ledger import Ledger, LedgerBook
from fedfdp.privacy.randomness import Seeded
from fedfdp.privacy.secure import Secure
from fedfdp.records import Weights
from fedfdp.runs.folder import LEDGER

log = logging.getLogger("fedfdp.node")


@dataclass(frozen=True)
class _Agreed:
    """Terms that the policy allowed, ready to compute with."""

    engine: LocalEngine
    template: Weights


class Node(AbstractContextManager["Node"]):
    """One data holder, with its folder open: only one process at a time can have it."""

    def __init__(self, config: NodeConfig, federation: Federation | None = None) -> None:
        self.config, self.policy, self.name = config, config.policy, config.name
        self.folder = Path(config.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.federation = federation or own_federation(config.name, config.data)
        (self.data,) = self.federation.clients
        # The ledger belongs to the holder, whatever its records are by now and whoever asks: nothing begins it anew.
        self.book = LedgerBook.open(
            self.folder / LEDGER,
            data=f"all records of {self.name}",
            config="all runs",
            budgets={self.name: self.policy.epsilon},
            delta=self.policy.delta,
            accountant=self.policy.accountant,
        )
        self.remembered = memory.load(self.folder)
        if self.book.charged() < self.remembered.charged:
            self.book.close()
            shown = f"shows {self.book.charged()} of at least {self.remembered.charged} charges"
            raise RunError(f"{self.folder / LEDGER} {shown}: missing or an older copy; put the right one back")
        self._agreed: dict[str, _Agreed] = {}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.book.close()

    @property
    def ledger(self) -> Ledger:
        return self.book.ledger(self.name)

    def answer(self, question: Question) -> Answer:
        """The answer to any question; one that is not allowed, or makes no sense, is refused with the reason."""
        try:
            if question.kind == "hello":
                return self._reply(question, self._hello())
            agreed = self._agree(question.terms)
            if question.kind == "train":
                return self._train(question, agreed)
            return self._reply(question, self._judge(question, agreed))
        except (RefusalError, FedFDPError) as refused:
            log.warning("refused %s, round %s: %s", question.kind, question.round, refused)
            return self._reply(question, b"", status="refused", reason=str(refused))

    def _reply(self, question: Question, record: bytes, status: Any = "ok", reason: str = "") -> Answer:
        spent = json.dumps(self.ledger.history)
        return Answer(status, question.run, question.round, reason=reason, spent=spent, record=record)

    def _hello(self) -> bytes:
        """No terms are needed to say who one is."""
        whole = self.federation
        shape, outputs = whole.input_shape, outputs_of(whole.classes, tuple(whole.y.shape[1:]))
        tokens = not whole.x.is_floating_point()
        said = Hello(self.name, self.data.size, shape, whole.classes, outputs, self.policy.evaluate, tokens, whole.unit)
        return records.to_bytes(said)

    def _agree(self, text: str) -> _Agreed:
        if text not in self._agreed:
            terms = Terms.read(text)
            self.policy.check_names(terms)
            method, privacy, whole = terms.method(), terms.dpsgd(), self.federation
            method.check_privacy(privacy)
            shape, outputs = whole.input_shape, outputs_of(whole.classes, tuple(whole.y.shape[1:]))
            model = build_model(
                terms.model,
                input_shape=shape,
                classes=whole.classes,
                outputs=outputs,
                seed=terms.start,
                tokens=not whole.x.is_floating_point(),
            )
            if terms.frozen and terms.frozen != frozen_digest(model):
                fix = "both sides must have the same file of it and the same version of torch"
                raise SettingError("model", terms.model.get("name"), "its frozen part is not the coordinator's", fix)
            learner = learner_of(model, whole.classes)
            engine = LocalEngine(
                whole,
                learner,
                method,
                privacy=privacy,
                randomness=Secure() if terms.seed is None else Seeded(terms.seed),
                book=None if privacy is None else self.book,
                fused=False,
            )
            self._agreed = {text: _Agreed(engine, learner.initial())}  # one run at a time
        return self._agreed[text]

    def _train(self, question: Question, agreed: _Agreed) -> Answer:
        engine, method = agreed.engine, agreed.engine.algorithm
        broadcast = checks.read(method.Message, question.record, agreed.template)
        if broadcast.round != question.round or question.round < 0:
            raise DataError(f"a broadcast of round {broadcast.round} in a question about round {question.round}")
        known = self.remembered.settled(question.run, question.last)
        before = records.from_bytes(method.Memory, known.memory) if known.memory else method.memory()
        request = records.digest(broadcast, question.run, question.terms, before)
        if request == known.request:  # the same bytes again: nothing new is released
            log.info("round %s: answered again, free", question.round)
            return self._reply(question, known.upload)
        if engine.privacy is not None:
            events = method.events(broadcast, engine.privacy)
            self.policy.check_price(events, engine.privacy, method, self.ledger)
        uploaded = list(engine.round(broadcast, {self.name: before}))
        if not uploaded:
            reason = f"epsilon = {self.policy.epsilon:g} does not allow another round"
            log.warning("round %s: %s", question.round, reason)
            return self._reply(question, b"", status="unable", reason=reason)
        ((upload, after),) = uploaded
        record = records.to_bytes(upload)
        self.remembered = memory.Remembered(
            run=question.run,
            round=question.round,
            request=request,
            charged=self.book.charged(),
            memory=records.to_bytes(before),
            upload=record,
            next=records.to_bytes(after),
        )
        memory.save(self.folder, self.remembered)
        log.info("round %s: uploaded, ε ≤ %.4f spent", question.round, self.ledger.epsilon_upper_bound())
        return self._reply(question, record)

    def _judge(self, question: Question, agreed: _Agreed) -> bytes:
        if not self.policy.evaluate:
            raise RefusalError("policy.evaluate does not allow evaluation on raw records")
        asked = checks.read(Judge, question.record, agreed.template)
        evaluator = Evaluator(agreed.engine.learner, self.federation)
        test = evaluator.test(asked.weights)
        train = evaluator.train(asked.weights) if asked.train else None
        got, trained = measures(test), None if train is None else measures(train)
        said = Judged(
            got["loss"],
            got["accuracy"],
            int(test.records[0]),
            trained["loss"] if trained else math.nan,
            trained["accuracy"] if trained else math.nan,
            len(self.data.train),
        )
        return records.to_bytes(said)


def own_federation(name: str, data: NodeData) -> Federation:
    """The holder's records as a federation of one."""
    if data.config is not None:
        from fedfdp.runs.launch import federation_of

        whole = federation_of(configs.load(data.config))
        assert data.part is not None
        if whole.before:
            allowed = f"{data.config} estimates ranges, which no node can do by itself"
            raise SettingError("data.columns", "private", allowed, "give public ranges")
        if not 0 <= data.part < len(whole):
            raise SettingError("data.part", data.part, f"0 to {len(whole) - 1}: {data.config} has {len(whole)} clients")
        client = whole.clients[data.part]
        if client.name != name:
            raise SettingError("name", name, f"part {data.part} of {data.config} is {client.name!r}")
        return Federation((client,), whole.classes, whole.name, whole.x, whole.y, unit=whole.unit)
    if data.file is not None:
        records = read_records(data, Path(data.file), progress=log.info)
        return single_holder(records, data, name, test_fraction=data.test_fraction)
    assert isinstance(data.classes, int | None)
    arrays = _from_loader(data.loader or "")
    return Federation.from_clients({name: arrays}, name=name, test_fraction=data.test_fraction, classes=data.classes)


def _from_loader(place: str) -> list[Any]:
    module, _, name = place.partition(":")
    try:
        return list(getattr(importlib.import_module(module), name)())
    except (ImportError, AttributeError, ValueError) as error:
        raise SettingError("data.loader", place, f"cannot be imported: {error}", "check PYTHONPATH") from None
