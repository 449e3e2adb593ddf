"""What a run is: all its settings, typed and checked. `layers.py` reads them from TOML; nothing is trained here."""

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from fedfdp import algorithms
from fedfdp.algorithms import Algorithm, algorithm_name, algorithm_settings
from fedfdp.core.errors import SettingError, nearest, require
from fedfdp.core.settings import left_out, parse, plain
from fedfdp.data.partition import How
from fedfdp.data.schema import Facts
from fedfdp.engines import check_engine
from fedfdp.engines.flower.settings import Flower
from fedfdp.engines.ray.settings import Ray
from fedfdp.features import Features
from fedfdp.models import Model
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.runs.layers import Settings, layered
from fedfdp.training.defaults import Settled, settle
from fedfdp.training.facts import PublicFacts
from fedfdp.training.participation import Participation
from fedfdp.training.server_optimizer import ServerOptimizer


@dataclass(frozen=True)
class Data(Facts):
    """Which records there are and who holds them: a dataset by name and its partition, or your own files."""

    source: str = "mnist"  # a dataset's name, or the path of your own files
    clients: int = 10  # how many clients a dataset by name is dealt out to
    partition: How = "dirichlet"  # how it is dealt out: dirichlet, iid, shards or column
    beta: float = 0.1  # for the Dirichlet partition: the smaller, the more unequal
    shards_per_client: int = 2  # for the shards partition
    column: str | None = None  # for the column partition: each of its values is a client
    test_fraction: float = 0.25  # the part of each client's records that is kept for evaluation
    fraction: float = 1.0  # the part of the records that is used at all
    folder: str | None = None  # where datasets are kept, or where your files are; None: the usual place
    seed: int | None = None  # of the partition; None: the run's
    content: str | None = None  # SHA-256 of your own files; other files are refused. Sweeps and tuning write it

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.clients >= 2, "data.clients", self.clients, "2 or more", "10 is the paper's")
        require(self.beta > 0, "data.beta", self.beta, "above 0", "0.1 is very unequal, 100 nearly equal")
        inside = 0 < self.test_fraction < 1
        require(inside, "data.test_fraction", self.test_fraction, "strictly between 0 and 1", "0.25 is the paper's")
        named = (self.column is not None) == (self.partition == "column")
        require(named, "data.column", self.column, 'goes together with partition = "column"', "set both or none")
        require(0 < self.fraction <= 1, "data.fraction", self.fraction, "in (0, 1]", "1 takes every record")
        require(
            self.shards_per_client >= 1, "data.shards_per_client", self.shards_per_client, "1 or more", "2 is usual"
        )


@dataclass(frozen=True)
class TopLevel:
    """The settings above all sections of a config."""

    name: str = "run"  # of the run, for display
    seed: int = 0  # of batches, noise, initial weights and partition
    rounds: int | None = None  # None: as many as the budget allows
    eval_every: int | None = None  # rounds between evaluations; None: about 15 evaluations in all
    engine: str = "local"  # local: in this process; ray: on a cluster; flower: across machines; or package.module:Class
    fused: bool = True  # whether many clients are computed in one pass
    device: str = "cpu"  # cpu, cuda or auto
    randomness: Literal["seeded", "secure"] = "seeded"  # secure: from the operating system, never the same again
    threads: int | None = None  # None: one per core
    loss: str | None = None  # package.module:function of (output, y), one loss per record; None: the usual one
    metric: str = "loss"  # Ψ is its variance over clients: loss, accuracy, package.module:function of outputs, targets

    def __post_init__(self) -> None:
        require(self.rounds is None or self.rounds >= 1, "rounds", self.rounds, "1 or more", "100 is usual")
        every = self.eval_every
        require(every is None or every >= 1, "eval_every", every, "1 or more", "leave it out for about 15 evaluations")
        fits = self.threads is None or 1 <= self.threads <= 1024
        require(fits, "threads", self.threads, "from 1 to 1024", "leave it out for one per core")
        check_engine(self.engine)
        require(0 <= self.seed < 2**63, "seed", self.seed, "from 0 to 2^63 − 1", "0 is usual")


@dataclass(frozen=True)
class Config(TopLevel):
    """A whole run. What is left out is None until `resolved`."""

    data: Data = field(default_factory=Data)  # which records, and who holds them
    features: Features | None = None  # a fixed map of each record before the model; None: records as they are
    model: Model = field(default_factory=Model)  # what is trained
    algorithm: Algorithm = field(default_factory=algorithms.FedFDP)  # the method with its settings
    privacy: DPSGD | None = None  # None: training without privacy
    server: ServerOptimizer = field(default_factory=ServerOptimizer)  # what the server adds to the method
    participation: Participation = field(default_factory=Participation)  # who takes part in a round
    ray: Ray | None = None  # over a cluster: which one, how many workers
    flower: Flower | None = None  # across machines: where, with whom, how long to wait

    def settled(self, facts: PublicFacts | None = None) -> Settled:
        """What is solved for and chosen of what is left out, with the reasons; all settings are checked."""
        self.algorithm.check_privacy(self.privacy)
        share, before = self.participation.fraction, self.data.before
        return settle(facts, self.algorithm, self.privacy, self.server, self.rounds, share=share, before=before)

    def resolved(self, facts: PublicFacts | None = None) -> "Config":
        """The same config with nothing left open.

        Of ε, σ and rounds the missing one is solved. The rest is chosen from `facts`; without them it must be given.
        """
        s = self.settled(facts)
        every = self.eval_every or max(1, math.ceil(s.rounds / 15))
        changes = {"algorithm": s.algorithm, "privacy": s.privacy, "server": s.server, "rounds": s.rounds}
        return replace(self, **changes, eval_every=every)  # type: ignore[arg-type]

    @property
    def open(self) -> bool:
        """Whether something is left out that can only be chosen once the records' sizes are known."""
        private = {"q", "delta"} if self.privacy is not None else set()
        fair = {"lr", "server_lam"} if self.privacy is not None else {"lr"}
        settings = [(self.privacy, private), (self.algorithm, fair), (self.model, {"name"})]
        return any(left_out(section, name) for section, names in settings for name in names)

    def to_dict(self) -> Settings:
        """What TOML holds; the inverse of `from_dict`."""
        top = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        sections = {name: plain(value) for name, value in top.items() if dataclasses.is_dataclass(value)}
        sections["algorithm"] = {"name": algorithm_name(self.algorithm), **sections["algorithm"]}
        scalars = {name: value for name, value in top.items() if name not in sections and value is not None}
        return {**scalars, **sections}

    def fingerprint(self) -> str:
        """Equal for runs that compute the same. Names, threads, device, cluster and evaluations do not count."""
        values = {k: v for k, v in self.to_dict().items() if k not in _NOT_COMPUTED}
        if self.metric == "loss":
            del values["metric"]  # older runs, made before there was a choice, keep their fingerprint
        values["algorithm"] = algorithm_settings(self.algorithm)
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def from_dict(settings: Mapping[str, object]) -> Config:
    """A Config from what TOML holds."""
    values: Settings = dict(settings)
    section = dict(values.pop("algorithm", {"name": "fedfdp"}))
    method = algorithms.find(str(section.pop("name", "fedfdp")))
    parts: Settings = {"algorithm": parse(method, section, "algorithm")}
    for name, kind in SECTIONS.items():
        if name in values:
            parts[name] = parse(kind, values.pop(name), name)
    known = [f.name for f in dataclasses.fields(Config)]
    for name in values:
        if name not in known:
            raise SettingError(name, values[name], f"no such setting; {nearest(name, known)}")
    return Config(**vars(parse(TopLevel, values, "")), **parts)


_NOT_COMPUTED = ("name", "eval_every", "threads", "device", "ray")
SECTIONS = {
    "data": Data,
    "features": Features,
    "model": Model,
    "privacy": DPSGD,
    "server": ServerOptimizer,
    "participation": Participation,
    "ray": Ray,
    "flower": Flower,
}


def load(source: str, overrides: Iterable[str] = ()) -> Config:
    """A Config from a preset's name or a TOML file, with `section.setting=value` overrides on top."""
    return from_dict(layered(source, overrides))
