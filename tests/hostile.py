"""A coordinator that means harm: endless malformed, extreme and out-of-order questions, the same ones for a seed.

Every field of every message is hit: types, sizes, missing and extra ones, numbers at every end, names that would be
imported, damaged tensors. It makes messages; what a node has to do with them is for the tests to say.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import safetensors.torch
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict

from fedfdp.algorithms import ALGORITHMS
from fedfdp.algorithms.base import Population
from fedfdp.core.records import Weights, to_bytes
from fedfdp.engines.flower.messages import Judge, Question, pack
from fedfdp.engines.flower.terms import Terms
from fedfdp.runs import config as configs

IMPORTS = [
    "antigravity:fly",
    "os:system",
    "this:s",
    "fedfdp.algorithms:FedAvg",
    "../x:y",
    ":",
    "a:b:c",
    "torch.nn:Linear",
]
NAMES = [
    "",
    "x",
    "none",
    "mlp\n",
    "FEDAVG",
    "/etc/passwd",
    "../../state",
    "ünï\u2028cödé",
    "\x00",
    "A" * 5000,
    *IMPORTS,
]
NUMBERS = [
    0, 1, -1, 2, 7, 2**31, 2**63, -(2**63), 0.0, -0.0, 0.5, 1e-320, 1e-45, 1e-12, 1e12, 1e35, 1e38, 1e39, 1e308, -1e308,
    float("nan"), float("inf"), -float("inf"), 10**400,
]  # fmt: skip
DEEP = "@deep@"
THINGS = [None, True, False, [], [1], [[]], {}, {"a": {}}, [None] * 50, {"name": "mlp"}, DEEP]
POOL = [*NAMES, *NUMBERS, *THINGS]
KEYS = ["train", "x", "__class__", "name", "seed", "", "ü", "weights"]


@dataclass(frozen=True)
class Case:
    """What is sent, and what was done to it."""

    label: str
    content: RecordDict
    kind: str = "train"


def text(document: Any) -> str:
    return json.dumps(document).replace(f'"{DEEP}"', "[" * 3000 + "]" * 3000)


def changed(document: Any, rng: random.Random) -> Any:
    """The document with one place of it replaced, removed, added to or wrapped."""
    if isinstance(document, dict) and document and rng.random() < 0.85:
        key = rng.choice(sorted(document))
        if rng.random() < 0.12:
            return {name: value for name, value in document.items() if name != key}
        if rng.random() < 0.08:
            return {**document, rng.choice(KEYS): rng.choice(POOL)}
        deeper = isinstance(document[key], dict) and rng.random() < 0.8
        return {**document, key: changed(document[key], rng) if deeper else rng.choice(POOL)}
    return rng.choice([rng.choice(POOL), [document], {"a": document}])


class Coordinator:
    """Knows a node's public facts and one valid question for each method, and sends everything else."""

    def __init__(self, weights: Weights, *, seed: int = 0, classes: int = 3) -> None:
        self.weights, self.rng = dict(weights), random.Random(seed)
        self.valid: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        for name in ALGORITHMS:
            overrides = ["data.source=digits", "model.name=linear", "rounds=3", f"algorithm.name={name}"]
            overrides += [
                "algorithm.lr=0.5",
                "privacy.sigma=2.0",
                "privacy.q=0.1",
                "privacy.epsilon=8",
                "privacy.clip=1",
            ]
            overrides += ["privacy.accountant=rdp"]
            overrides += ["algorithm.local_steps=2"] if name in ("scaffold", "feddyn") else []
            try:
                config = configs.load("digits", overrides).resolved()
            except Exception:  # a method that has no private form
                continue
            state = config.algorithm.init(self.weights, Population(3, 100, 10, classes), config.privacy)
            broadcast = config.algorithm.broadcast(state)
            header = json.loads(_header(to_bytes(broadcast)))
            terms = Terms.of(config.algorithm, config.model, config.privacy, config.seed, seeded=False)
            self.valid[name] = json.loads(terms.to_json()), header

    def question(self, name: str, round: int = 0, run: str = "r") -> Question:
        terms, header = self.valid[name]
        return Question("train", run, text(terms), round, -1, self.record({**header, "round": round}))

    def record(self, header: Any, tensors: dict[str, torch.Tensor] | None = None) -> bytes:
        given = self.tensors(header) if tensors is None else tensors
        return safetensors.torch.save(given, metadata={"record": header if isinstance(header, str) else text(header)})

    def tensors(self, header: Any) -> dict[str, torch.Tensor]:
        """Those that the header speaks of, as far as it does."""
        places = [k for k, v in header.items() if isinstance(v, dict)] if isinstance(header, dict) else ["weights"]
        return {f"/{place}/{name}": t.clone() for place in places or ["weights"] for name, t in self.weights.items()}

    def cases(self, count: int) -> Iterator[Case]:
        ways = [self._fields, self._terms, self._terms, self._names, self._header, self._header, self._tensors,
                self._bytes, self._content, self._judge, self._order, self._valid]  # fmt: skip
        for _ in range(count):
            name = self.rng.choice(sorted(self.valid))
            case = self.rng.choice(ways)(name)
            yield Case(f"{name}: {case.label}", case.content, case.kind)

    # One way to go wrong each ---------------------------------------------------------------------------------------

    def _packed(self, label: str, question: Question, **fields: Any) -> Case:
        """With some fields as they are not allowed to be: past the checks that an honest sender has."""
        content = pack(question)
        for name, value in fields.items():
            content["fedfdp"][name] = value
        return Case(label, content, str(fields.get("kind", question.kind)))

    def _fields(self, name: str) -> Case:
        question, rng = self.question(name), self.rng
        field = rng.choice(["kind", "run", "terms", "round", "last"])
        values = [*NAMES, -1, 0, 1, 2**31, 2**63 - 1, -(2**63), 1.5, True, b"", b"x", [1, 2], ["a"], float("nan")]
        value = rng.choice(values)
        return self._packed(f"{field} = {value!r:.40}", question, **{field: value})

    def _terms(self, name: str) -> Case:
        terms = changed(self.valid[name][0], self.rng)
        made = self.rng.choice([text(terms)] * 12 + [text(terms)[:-9], "", "[]", "null", text(terms) * 2, "1" * 6000])
        return self._packed(f"terms {made:.200}", self.question(name), terms=made)

    def _names(self, name: str) -> Case:
        terms = dict(self.valid[name][0])
        section, value = (
            self.rng.choice(["algorithm", "model", "privacy"]),
            self.rng.choice([*NAMES, *ALGORITHMS, "mlp", "paper-cnn"]),
        )
        if section == "privacy":
            terms[section] = {**terms[section], "accountant": value}
            return self._packed(f"accountant {value!r:.100}", self.question(name), terms=text(terms))
        more = self.rng.choice(
            [{}, {"arguments": {"hidden": self.rng.choice([[10**9], [1] * 4000, [-1], [0], "x", [4]])}}]
        )
        terms[section] = {**terms[section], "name": value, **(more if section == "model" else {})}
        return self._packed(f"{section} {terms[section]!r:.100}", self.question(name), terms=text(terms))

    def _header(self, name: str) -> Case:
        header = changed(self.valid[name][1], self.rng)
        record = self.record(header, self.tensors(self.valid[name][1]))
        return self._packed(f"broadcast {text(header):.200}", _with(self.question(name), record))

    def _tensors(self, name: str) -> Case:
        rng, header = self.rng, self.valid[name][1]
        tensors = self.tensors(header)
        place = rng.choice(sorted(tensors))
        t = tensors[place]
        spoilt = rng.choice([
            t.double(), t.half(), t.bfloat16(), t.long(), t.bool(), t.to(torch.uint8), t[:0], t[..., :1], t.reshape(-1),
            t[None], torch.tensor(1.0), torch.full_like(t, float("nan")), torch.full_like(t, float("inf")), t * 1e38,
            t * 1e30, t * 1e-40, t * 0, torch.full_like(t, 3e38), torch.zeros(300, 300), torch.zeros(0, 7), None,
        ])  # fmt: skip
        if spoilt is None:
            del tensors[place]
        else:
            tensors[place] = spoilt.contiguous()
        if rng.random() < 0.1:
            tensors["/extra"] = torch.ones(3)
        said = "gone" if spoilt is None else f"{spoilt.dtype} {tuple(spoilt.shape)} {float(spoilt.double().sum()):g}"
        return self._packed(f"{place} {said}", _with(self.question(name), self.record(header, tensors)))

    def _bytes(self, name: str) -> Case:
        question, rng = self.question(name), self.rng
        good = question.record
        at = rng.randrange(len(good))
        spoilt = rng.choice([
            good[:at], good[at:], good + b"x" * at, b"", b"\x00" * 8, b"\xff" * at, good[:8],
            bytes([good[0] ^ 1]) + good[1:], (2**62).to_bytes(8, "little") + good[8:],
            good[:at] + bytes([good[at] ^ (1 << rng.randrange(8))]) + good[at + 1 :],
            good.replace(b"F32", b"F64"), good.replace(b"F32", b"I8 "), good.replace(b"data_offsets", b"data_offset_"),
            good.replace(b"__metadata__", b"__metadata_x"), b"\x80\x04K\x01.", rng.randbytes(300),
        ])  # fmt: skip
        return self._packed(f"{len(spoilt)} bytes, at {at}", _with(question, spoilt))

    def _content(self, name: str) -> Case:
        content, rng = pack(self.question(name)), self.rng
        fields = dict(content["fedfdp"])
        array = content["record"]["record"]
        way = rng.randrange(9)
        if way == 0:
            content = RecordDict({})
        elif way == 1:
            content["fedfdp"] = MetricRecord({"a": 1.0})
        elif way == 2:
            content["fedfdp"] = ConfigRecord({**fields, "more": rng.choice([1, "a", b"b", [1.0]])})
        elif way == 3:
            del content["fedfdp"][rng.choice(sorted(fields))]
        elif way == 4:
            content["record"] = ArrayRecord({"record": Array("uint8", (len(array.data),), "numpy.ndarray", array.data)})
        elif way == 5:
            content["record"] = ArrayRecord({"other": array})
        elif way == 6:
            content["record"] = ArrayRecord({"record": Array("float64", (2**40,), array.stype, array.data[:50])})
        elif way == 7:
            content["record"] = ConfigRecord({"record": array.data})
        else:
            content["another"] = ConfigRecord({"a": "b"})
        return Case(f"content {way}", content)

    def _judge(self, name: str) -> Case:
        header = json.loads(_header(to_bytes(Judge(self.weights))))
        if self.rng.random() < 0.8:
            header = changed(header, self.rng)
        tensors = self.tensors({"weights": {}})
        if self.rng.random() < 0.3:
            tensors = {k: t * self.rng.choice([0.0, 1e38, float("nan")]) for k, t in tensors.items()}
        question = _with(self.question(name), self.record(header, tensors))
        return self._packed(f"judge {text(header):.150}", question, kind="evaluate")

    def _order(self, name: str) -> Case:
        """Rounds in any order, runs that are over, one method's questions in another's run."""
        rng = self.rng
        round = rng.choice([0, 0, 1, 2, 5, 2**31 - 1, 2**31, -1])
        question = self.question(name, max(0, min(round, 2**31 - 1)), rng.choice(["r", "r", "s", "old", "../r"[3:]]))
        return self._packed(f"round {round}", question, round=round, last=rng.choice([-1, 0, 1, round, round - 1]))

    def _valid(self, name: str) -> Case:
        return Case("valid", pack(self.question(name, self.rng.choice([0, 1, 2]), self.rng.choice("rst"))))


def _with(question: Question, record: bytes) -> Question:
    return Question(question.kind, question.run, question.terms, question.round, question.last, record)


def _header(data: bytes) -> str:
    length = int.from_bytes(data[:8], "little")
    found: str = json.loads(data[8 : 8 + length])["__metadata__"]["record"]
    return found
