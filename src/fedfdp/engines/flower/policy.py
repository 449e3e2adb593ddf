"""What a data holder allows, and where its things are: node.toml. The coordinator can ask for less, never for more."""

import json
import math
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

from fedfdp.algorithms import ALGORITHMS, FIXED_PRICE
from fedfdp.algorithms.base import Algorithm
from fedfdp.core import ranges
from fedfdp.core.errors import SettingError, require
from fedfdp.core.settings import parse, read_toml
from fedfdp.data.columns import PRIVATE
from fedfdp.data.schema import Facts
from fedfdp.engines.flower.settings import host_port, loopback
from fedfdp.engines.flower.terms import Terms
from fedfdp.features import FEATURES
from fedfdp.models import MODELS
from fedfdp.privacy.accounting import Event, find
from fedfdp.privacy.accounting.events import history_of
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.privacy.ledger.ledger import Ledger, in_words
from fedfdp.privacy.ledger.periods import Every, Limit


@dataclass(frozen=True)
class Policy:
    """What may leave the node. ε is for all runs together, for as long as the node's folder is kept."""

    epsilon: float = 3.52  # the most that may be spent
    delta: float = 1e-5  # the δ of that ε
    epsilon_per_period: float | None = None  # of it, the most within one calendar period (UTC); None: no such limit
    period: Every = "year"  # year, quarter or month
    min_sigma: Annotated[float, ranges.ALLOWED_NOISE] = 1.0  # the least effective noise multiplier of a batch
    max_q: Annotated[float, ranges.SAMPLING] = 0.1  # the highest sampling rate
    max_steps: Annotated[int, ranges.ALLOWED_STEPS] = 10_000  # batches in a round
    algorithms: tuple[str, ...] = FIXED_PRICE  # methods that may be run, by name or import path
    models: tuple[str, ...] = tuple(MODELS)  # models that may be trained, by name or import path
    features: tuple[str, ...] = tuple(FEATURES)  # maps that may come before a model, by name or import path
    arguments: dict[str, dict[str, Any]] = field(default_factory=dict)  # all that models or maps by import path may get
    max_weights: Annotated[int, ranges.ALLOWED_WEIGHTS] = 10**8  # the size of a model by name, trained or not
    accountant: str = "pld"  # of the node's ledger; with "filter" rounds may differ in price; or package.module:Class
    evaluate: bool = False  # whether exact results on the test records may leave the node
    evaluations: Annotated[int, ranges.ALLOWED_ANSWERS] = 1000  # answered at most, over all runs
    without_privacy: bool = False  # whether training without noise is allowed; such rounds are counted, and told
    unsafe_seeded: bool = False  # whether a coordinator's seed may decide noise: on this machine only

    def __post_init__(self) -> None:
        ranges.check(self, "policy")
        require(0 < self.epsilon < math.inf, "policy.epsilon", self.epsilon, "a budget above 0")
        require(0 < self.delta < 1, "policy.delta", self.delta, "a probability in (0, 1)")
        per = self.epsilon_per_period
        require(per is None or 0 < per < math.inf, "policy.epsilon_per_period", per, "a budget above 0")
        find(self.accountant, "policy.accountant", enforces=True)
        for name in self.algorithms:
            known = name in ALGORITHMS or ":" in name
            require(known, "policy.algorithms", name, f"among {', '.join(ALGORITHMS)}, or package.module:Class")

    @property
    def limit(self) -> Limit | None:
        """What a calendar period may cost."""
        return None if self.epsilon_per_period is None else Limit(self.epsilon_per_period, self.period)

    @property
    def dearest(self) -> Event:
        """The most expensive batch that the policy allows."""
        return Event(self.max_q, (self.min_sigma,))

    def check_names(self, terms: Terms) -> None:
        """Refuses before anything is looked up: a name that is not listed is not even imported."""
        _refuse(terms.algorithm.get("name") in self.algorithms, "algorithms", terms.algorithm.get("name"))
        _refuse(terms.model.get("name") in self.models, "models", terms.model.get("name"))
        if terms.features is not None:
            _refuse(terms.features.get("name") in self.features, "features", terms.features.get("name"))
        for section in (terms.model, terms.features or {}):
            if ":" in (name := str(section.get("name"))):  # the owner's own code is called with the owner's arguments
                given, allowed = section.get("arguments") or {}, self.arguments.get(name, {})
                _refuse(given == json.loads(json.dumps(allowed)), "arguments", given)
        _refuse(terms.seed is None or self.unsafe_seeded, "unsafe_seeded", "a configured seed")
        if terms.privacy is None:
            _refuse(self.without_privacy, "without_privacy", "training without privacy")
            return
        accountant = str(terms.privacy.get("accountant"))
        # A class of one side alone: the other cannot count by it, and the coordinator would take no upload.
        ours = accountant == self.accountant or ":" not in accountant + self.accountant
        _refuse(ours, "accountant", accountant)

    def check_price(self, events: tuple[Event, ...], privacy: DPSGD, method: Algorithm, ledger: Ledger) -> None:
        """Checks the round's noise and sampling; and, except under a filter, that it costs what the first round did.

        A coordinator that chooses σ or q by what it has seen is adaptive: only the filter's bound holds then.
        """
        for event in events:
            sigma = event.sigma_effective
            _refuse(sigma >= self.min_sigma, "min_sigma", f"an effective noise multiplier of {sigma:.4g}")
        _refuse(privacy.q <= self.max_q, "max_q", f"q = {privacy.q:g}")
        steps = sum(event.count for event in events)
        _refuse(steps <= self.max_steps, "max_steps", f"{steps:.6g} batches in a round")
        if ledger.any_price:
            claimed = self.delta <= privacy.delta
            _refuse(claimed, "delta", f"delta = {privacy.delta:g}: this ledger is a filter for {self.delta:g}")
            return
        _refuse(not method.adaptive, "accountant", f"{method.name}, whose price reacts to the run: it takes a filter")
        if not ledger.takes(events):
            raise RefusalError(
                f"policy.accountant = {self.accountant!r} keeps every round of every run at the price of the first, "
                f"{in_words(ledger.price)}; asked: {in_words(history_of(events))}. Keep that price, or ask the owner "
                f'for a node with accountant = "filter"'
            )


@dataclass(frozen=True)
class NodeData(Facts):
    """The holder's records: a file, a function of the holder's own, or (to try things out) a part of a run's data."""

    file: str | None = None  # a table, an archive or a folder of images, with its public facts beside it
    loader: str | None = None  # package.module:function that returns x, y and, where the split is given, x_test, y_test
    config: str | None = None  # to try things out: a run's config; this node is one of its clients, …
    part: int | None = None  # … the one at this index
    test_fraction: float | None = None  # of the records, held back for good if no split is given; None: a quarter

    def __post_init__(self) -> None:
        super().__post_init__()
        given = [self.file, self.loader, self.config]
        if len([g for g in given if g is not None]) != 1 or (self.config is None) != (self.part is None):
            raise SettingError("data", given, "give one of file, loader, or config with part")
        fraction = self.test_fraction
        if fraction is not None and not 0 <= fraction < 1:
            raise SettingError("data.test_fraction", fraction, "at least 0 and below 1")
        if self.estimates:
            allowed = "across machines all nodes must scale alike, so no node can estimate a range by itself"
            raise SettingError("data.columns", PRIVATE, allowed, "agree on public ranges beforehand")
        self._check_used()
        if self.loader is not None and not isinstance(self.classes, int | None):
            raise SettingError("data.classes", self.classes, "a loader gives class numbers", "give how many there are")

    def _check_used(self) -> None:
        """Refuses a setting that would have no effect; which kind of file takes which is checked when it is read."""
        if self.file is not None:
            useless, why = {"estimate", "unchecked"}, "ranges at nodes are public, agreed on beforehand"
            for name in ("group", "group_input", "favourable"):
                out = "a node gives out nothing of groups; a column that the model does not take is for data.ignore"
                require(getattr(self, name) is None, f"data.{name}", getattr(self, name), out, "leave it out")
        elif self.loader is not None:
            useless, why = _FACTS - {"unit", "classes", "task"}, "a loader gives its arrays as they are to be used"
        else:
            useless, why = _FACTS | {"test_fraction"}, "data.config says it, for all parts"
        for name in sorted(useless):
            if getattr(self, name) not in (None, {}, ()):
                raise SettingError(f"data.{name}", getattr(self, name), f"has no use here: {why}", "leave it out")


_FACTS = {fact.name for fact in fields(Facts)}


@dataclass(frozen=True)
class NodeConfig:
    """Everything a node is started with."""

    name: str  # as the coordinator knows it
    server: str  # host:port of the coordinator
    folder: str  # where ledger and memory are kept
    data: NodeData  # the holder's records
    key: str | None = None  # file of the node's private key
    certificate: str | None = None  # file of the authority's certificate
    plain_text: bool = False  # no TLS: on this machine only
    threads: int | None = None  # None: one per core
    width: float = 1.0  # the part of the full model's width that this node can hold; 0.5: half of its channels
    policy: Policy = field(default_factory=Policy)  # what the owner allows
    witness: str | None = None  # a second copy of the ledger, outside the folder; None: beside it, FOLDER.witness

    @property
    def second(self) -> Path:
        """Where the second copy of the ledger is."""
        folder = Path(self.folder)
        return Path(self.witness) if self.witness else folder.with_name(folder.name + ".witness")

    def __post_init__(self) -> None:
        require(0 < self.width <= 1, "width", self.width, "above 0, at most 1", "1 holds the full model")
        fits = self.threads is None or 1 <= self.threads <= 1024
        require(fits, "threads", self.threads, "from 1 to 1024", "leave it out for one per core")
        near = loopback(host_port("server", self.server)[0])
        if self.plain_text and not near:
            raise SettingError("plain_text", True, f"only on this machine, not to {self.server}", "use TLS")
        if not self.plain_text and (self.key is None or self.certificate is None):
            missing = "key" if self.key is None else "certificate"
            raise SettingError(missing, None, "needed: TLS and the node's key are not optional", "see docs/deploy.md")
        if self.policy.unsafe_seeded and not near:
            fix = "leave it out: batches and noise then come from the operating system"
            raise SettingError("policy.unsafe_seeded", True, f"only on this machine, not with {self.server}", fix)


def load_node(path: Path) -> NodeConfig:
    """The node of this file; paths in it are relative to it."""
    values = read_toml(path)
    for section, names in (
        (values, ("folder", "key", "certificate", "witness")),
        (values.get("data", {}), ("file", "config")),
    ):
        for name in names:
            if isinstance(section, dict) and isinstance(section.get(name), str):
                section[name] = str(path.parent / section[name])
    for required in ("name", "server", "folder", "data"):
        if required not in values:
            raise SettingError(required, None, f"{path} must set it", "see docs/deploy.md")
    return parse(NodeConfig, values, "node")


class RefusalError(Exception):
    """A request that the node's owner does not allow; the text names the rule."""


def _refuse(allowed: bool, rule: str, asked: object) -> None:
    if not allowed:
        raise RefusalError(f"policy.{rule} does not allow {asked!s:.80}")
