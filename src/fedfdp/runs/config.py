"""What a run is: typed, validated, TOML in and out. Nothing is trained and no record is read here."""

import dataclasses
import hashlib
import json
import math
import os
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from fedfdp import algorithms
from fedfdp.algorithms import Algorithm, algorithm_name, algorithm_settings
from fedfdp.core.errors import SettingError, nearest, require
from fedfdp.core.settings import parse, plain
from fedfdp.data.files.paths import looks_like_path
from fedfdp.data.named.catalog import named
from fedfdp.data.schema import Facts
from fedfdp.engines import check_engine
from fedfdp.engines.flower.settings import Flower
from fedfdp.models import Model
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.training.budget import resolve_privacy
from fedfdp.training.participation import Participation
from fedfdp.training.server_optimizer import ServerOptimizer

PRESETS = Path(__file__).parent / "presets"


@dataclass(frozen=True)
class Data(Facts):
    """Which records there are, and who holds them: a dataset by name and how it is dealt out, or your own files."""

    source: str = "mnist"  # a dataset's name, or the path of your own files
    clients: int = 10  # how many a dataset by name is dealt out to
    partition: Literal["dirichlet", "iid", "shards", "column"] = "dirichlet"  # how it is dealt out
    beta: float = 0.1  # of the Dirichlet partition: the smaller, the more unequal
    shards_per_client: int = 2  # of the shards partition
    column: str | None = None  # of the column partition: its values are the clients
    test_fraction: float = 0.25  # of each client's records, held back for evaluation
    fraction: float = 1.0  # the part of the records that is used at all
    folder: str | None = None  # where datasets are kept, or your files are; None: the usual place
    seed: int | None = None  # of the partition; None: the run's
    content: str | None = None  # SHA-256 of your own files: a run of others is refused; sweeps and tuning write it

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
class Config:
    """A whole run. Of ε, σ and rounds one may be None until `resolved`."""

    name: str = "run"  # of the run, for people
    seed: int = 0  # of batches, noise, weights and partition
    rounds: int | None = None  # None: as many as the budget allows
    eval_every: int | None = None  # rounds between evaluations; None: about 15 in all
    engine: str = "local"  # all clients in this process; flower: across machines; or package.module:Class
    fused: bool = True  # whether many clients are computed in one pass
    device: str = "cpu"  # cpu, cuda or auto
    randomness: Literal["seeded", "secure"] = "seeded"  # secure: from the operating system, never repeated
    threads: int | None = None  # None: one per core
    loss: str | None = None  # package.module:function of (output, y), one loss a record; None: by what is predicted
    metric: str = "loss"  # what Ψ is reported of: loss, accuracy, or package.module:function of (outputs, targets)
    data: Data = field(default_factory=Data)  # which records, and who holds them
    model: Model = field(default_factory=Model)  # what is trained
    algorithm: Algorithm = field(default_factory=algorithms.FedFDP)  # the method with its settings
    privacy: DPSGD | None = None  # None: training without privacy
    server: ServerOptimizer = field(default_factory=ServerOptimizer)  # what the server adds to the method
    participation: Participation = field(default_factory=Participation)  # who takes part in a round
    flower: Flower | None = None  # across machines: where, with whom, how long to wait

    def __post_init__(self) -> None:
        require(self.rounds is None or self.rounds >= 1, "rounds", self.rounds, "1 or more", "100 is usual")
        every = self.eval_every
        require(every is None or every >= 1, "eval_every", every, "1 or more", "leave it out for about 15 looks")
        fits = self.threads is None or 1 <= self.threads <= 1024
        require(fits, "threads", self.threads, "from 1 to 1024", "leave it out for one a core")
        check_engine(self.engine)
        require(0 <= self.seed < 2**63, "seed", self.seed, "from 0 to 2^63 − 1", "0 is usual")

    def resolved(self) -> "Config":
        """The same with nothing left open: ε, σ or rounds solved, and checked against each other."""
        self.algorithm.check_privacy(self.privacy)
        share, before = self.participation.fraction, self.data.before
        privacy, rounds = resolve_privacy(self.privacy, self.algorithm, self.rounds, share=share, before=before)
        every = self.eval_every or max(1, math.ceil(rounds / 15))
        return replace(self, privacy=privacy, rounds=rounds, eval_every=every)

    def to_dict(self) -> dict[str, Any]:
        """What TOML holds: from_dict's inverse."""
        top = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        sections = {name: plain(value) for name, value in top.items() if dataclasses.is_dataclass(value)}
        sections["algorithm"] = {"name": algorithm_name(self.algorithm), **sections["algorithm"]}
        scalars = {name: value for name, value in top.items() if name not in sections and value is not None}
        return {**scalars, **sections}

    def fingerprint(self) -> str:
        """Equal for runs that compute the same: what only says how often to look or on how many threads is left out."""
        values = {k: v for k, v in self.to_dict().items() if k not in ("name", "eval_every", "threads", "device")}
        if self.metric == "loss":
            del values["metric"]  # so that a run keeps the name it had before there was a choice
        values["algorithm"] = algorithm_settings(self.algorithm)
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def from_dict(values: dict[str, Any]) -> Config:
    """A Config from what TOML holds."""
    values = dict(values)
    section = dict(values.pop("algorithm", {"name": "fedfdp"}))
    method = algorithms.find(str(section.pop("name", "fedfdp")))
    parts: dict[str, Any] = {"algorithm": parse(method, section, "algorithm")}
    for name, kind in SECTIONS.items():
        if name in values:
            parts[name] = parse(kind, values.pop(name), name)
    known = [f.name for f in dataclasses.fields(Config)]
    for name in values:
        if name not in known:
            raise SettingError(name, values[name], f"no such setting; {nearest(name, known)}")
    top: Any = parse(_Top, values, "")
    return Config(**{f.name: getattr(top, f.name) for f in dataclasses.fields(_Top)}, **parts)


SECTIONS = {
    "data": Data,
    "model": Model,
    "privacy": DPSGD,
    "server": ServerOptimizer,
    "participation": Participation,
    "flower": Flower,
}

_Top = dataclasses.make_dataclass(
    "_Top",
    [
        (f.name, f.type, dataclasses.field(default=f.default))
        for f in dataclasses.fields(Config)
        if f.name != "algorithm" and f.name not in SECTIONS
    ],
)


def presets() -> list[str]:
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def load(source: str, overrides: Iterable[str] = ()) -> Config:
    """A Config from a preset's name or a TOML file, with `section.setting=value` overrides on top."""
    return from_dict(layered(source, overrides))


def layered(source: str, overrides: Iterable[str] = ()) -> dict[str, Any]:
    """The settings of a preset or file; a file may build on a preset, or on a file beside it, by `base = "default"`.

    Paths in a file are relative to that file, those in overrides to the current folder.
    """
    overrides = list(overrides)
    values, beside = _read(source)
    if "source" in _section(override({}, overrides), "data"):
        beside = Path()
    return _placed(override(values, overrides), beside)


def override(values: dict[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """The settings with `section.setting=value` on top."""
    for item in overrides:
        name, equals, text = item.partition("=")
        if not equals:
            raise SettingError("--set", item, "expected section.setting=value", "for example --set rounds=100")
        layer: Any = _literal(text.strip())
        for part in reversed(name.strip().split(".")):
            layer = {part: layer}
        values = merge(values, layer)
    return values


def merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """`above` on top of `below`. Another method or model takes along only settings that every one has."""
    merged = dict(below)
    for name, value in above.items():
        if name == "privacy" and value in ("none", False):
            merged.pop(name, None)
        elif isinstance(value, dict) and isinstance(merged.get(name), dict):
            kept = merged[name]
            if name in ("algorithm", "model") and value.get("name", kept.get("name")) != kept.get("name"):
                shared = {f.name for f in dataclasses.fields(Algorithm)} if name == "algorithm" else set()
                kept = {key: setting for key, setting in kept.items() if key in shared}
            merged[name] = merge(kept, value)
        else:
            merged[name] = value
    return merged


def _read(source: str, above: tuple[Path, ...] = ()) -> tuple[dict[str, Any], Path]:
    """A file's settings, on top of those it builds on, and the folder that its `data.source` is relative to."""
    path = Path(source)
    if path.suffix != ".toml":
        path = PRESETS / f"{source}.toml"
        if not path.is_file():
            named_in = f"base of {above[-1]}" if above else "preset"
            raise SettingError(named_in, source, nearest(source, presets()), "or the path of a .toml file")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        named_in = f"base of {above[-1]}" if above else "config"
        raise SettingError(named_in, str(path), f"cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError("config", str(path), f"not valid TOML: {error}") from None
    if path.resolve() in above:
        raise SettingError("base", str(path), f"builds on itself, by way of {above[-1]}", "leave base out of one")
    base, own = values.pop("base", None), _section(values, "data")
    if isinstance(own.get("folder"), str):
        values["data"] = {**own, "folder": os.path.abspath(path.parent / own["folder"])}
    if base is None:
        return values, path.parent
    if not isinstance(base, str):
        raise SettingError("base", base, "the name of a preset or the path of a .toml file", f"correct it in {path}")
    below, beside = _read(str(path.parent / base) if base.endswith(".toml") else base, (*above, path.resolve()))
    return merge(below, values), path.parent if "source" in own else beside


def _placed(values: dict[str, Any], beside: Path) -> dict[str, Any]:
    """With the paths of data files made absolute: `source` is below `folder` where that is given, else `beside`."""
    section = _section(values, "data")
    source, folder = section.get("source"), section.get("folder")
    placed: dict[str, Any] = {}
    if isinstance(folder, str):
        placed["folder"] = os.path.abspath(folder)
        if isinstance(source, str) and not looks_like_path(source) and not named(source, Path(folder)):
            placed["source"] = os.path.join(".", source)  # so that it is known for a path wherever it is looked at
    elif isinstance(source, str) and not named(source, beside):
        placed["source"] = os.path.abspath(beside / source)
    return {**values, "data": {**section, **placed}} if placed else values


def _section(values: dict[str, Any], name: str) -> dict[str, Any]:
    """A section as it was written; empty where there is none."""
    section = values.get(name)
    return section if isinstance(section, dict) else {}


def _literal(text: str) -> Any:
    """A TOML value; anything that is none is taken as a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
