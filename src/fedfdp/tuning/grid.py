"""The settings to try: every combination of the given values, each made into a config. Nothing is run here."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedfdp.core.errors import SettingError
from fedfdp.runs import config as configs
from fedfdp.runs import layers
from fedfdp.runs.build import federation_of, fitted
from fedfdp.runs.config import Config

Grid = Mapping[str, Sequence[str]]  # "section.setting" → its values, as TOML has them


@dataclass(frozen=True)
class Candidate:
    """One combination: what `--set` would say, and the run it makes."""

    overrides: tuple[str, ...]
    config: Config

    @property
    def label(self) -> str:
        """Short: without the sections' names."""
        pairs = (item.partition("=") for item in self.overrides)
        return " ".join(f"{name.rpartition('.')[2]}={value}" for name, _, value in pairs)


def parse_grid(items: Iterable[str]) -> dict[str, list[str]]:
    """`section.setting=v1,v2,…` for each setting."""
    grid: dict[str, list[str]] = {}
    for item in items:
        name, equals, text = item.partition("=")
        values = [value.strip() for value in text.split(",")]
        if not equals or not name.strip() or not all(values):
            fix = "for example --grid algorithm.lr=8,16,32"
            raise SettingError("--grid", item, "expected section.setting=v1,v2,…", fix)
        grid[name.strip()] = values
    return grid


def default_grid(config: Config) -> dict[str, list[str]]:
    """What is tried where no grid is given: what the method proposes, and C and ten times it."""
    grid = {f"algorithm.{name}": tried for name, tried in config.algorithm.grid().items()}
    if config.privacy is not None:
        grid["privacy.clip"] = (1.0 * config.privacy.clip, 10.0 * config.privacy.clip)
    return {name: [str(value) for value in tried] for name, tried in grid.items()}


def candidates(source: str, overrides: Sequence[str], grid: Grid | None, *, public: str | None) -> list[Candidate]:
    """Every combination on top of a preset and its overrides; on public data where that is named instead.

    What is left out is chosen once, for all of them; σ, ε or rounds are solved anew for each. Combinations that compute
    the same are tried once.
    """
    given = layers.layered(source, overrides)
    if public is not None:
        given = on_public(given, public)
    config = configs.from_dict(given)
    config = fitted(config, federation_of(config)) if config.open else config.resolved()
    values = _solved_anew(config.to_dict(), given)
    grid = default_grid(config) if grid is None else grid
    found: dict[str, Candidate] = {}
    for chosen in itertools.product(*grid.values()):
        items = tuple(f"{name}={value}" for name, value in zip(grid, chosen, strict=True))
        config = configs.from_dict(layers.override(values, items)).resolved()
        candidate = Candidate(items, replace(config, name="tune"))
        computed = replace(candidate.config, algorithm=config.algorithm.without_idle())
        found.setdefault(computed.fingerprint(), candidate)
    return list(found.values())


def _solved_anew(values: layers.Settings, given: Mapping[str, Any]) -> layers.Settings:
    """The settings without what follows from the others: the one of ε, σ and rounds that was left out."""
    private = given.get("privacy")
    if not isinstance(private, dict):
        return values
    if "sigma" not in private or private["sigma"] == "none":
        open_ones = ["sigma", *(["sigma_loss"] if "sigma_loss" not in private else [])]
    else:
        open_ones = ["epsilon"] if "epsilon" not in private else []
    if "rounds" not in given and not open_ones:
        values = {name: value for name, value in values.items() if name != "rounds"}
    left = {name: value for name, value in values["privacy"].items() if name not in open_ones}
    return {**values, "privacy": left}


def on_public(values: Mapping[str, Any], dataset: str) -> dict[str, Any]:
    """The same settings with another data set; files of the private one are left out."""
    section = values.get("data")
    data = {name: value for name, value in section.items() if name != "folder"} if isinstance(section, dict) else {}
    return {**values, "data": {**data, "source": dataset}}
