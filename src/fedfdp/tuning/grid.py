"""The settings to try: every combination of the given values, each made into a config. Nothing is run here."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedfdp.algorithms import FedFDP
from fedfdp.core.errors import SettingError
from fedfdp.runs import config as configs
from fedfdp.runs import layers
from fedfdp.runs.config import Config

Grid = Mapping[str, Sequence[str]]  # "section.setting" → its values, as TOML has them

# Tried where no grid is given, of these what the preset's method has. × is times the preset's own value.
DEFAULT = {
    "algorithm.lam": ("0.0", "0.5"),
    "algorithm.kappa": ("2.0", "4.0"),
    "algorithm.server_lam": ("0.0", "5.0", "20.0"),
    "algorithm.lr": ("×0.5", "×1", "×2"),
    "privacy.clip": ("×1", "×10"),
}


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


def default_grid(values: Mapping[str, Any]) -> dict[str, list[str]]:
    """The usual settings, as far as these (of a preset) have them."""
    known = configs.from_dict(dict(values)).to_dict()
    grid = {}
    for name, choices in DEFAULT.items():
        section, _, setting = name.partition(".")
        own = known.get(section, {}).get(setting)
        if own is not None:
            grid[name] = [str(float(own) * float(c[1:])) if c.startswith("×") else c for c in choices]
    return grid


def candidates(source: str, overrides: Sequence[str], grid: Grid | None, *, public: str | None) -> list[Candidate]:
    """Every combination on top of a preset and its overrides; on public data where that is named instead.

    Combinations that compute the same are tried once.
    """
    values = layers.layered(source, overrides)
    if public is not None:
        values = on_public(values, public)
    grid = default_grid(values) if grid is None else grid
    found: dict[str, Candidate] = {}
    for chosen in itertools.product(*grid.values()):
        items = tuple(f"{name}={value}" for name, value in zip(grid, chosen, strict=True))
        config = configs.from_dict(layers.override(values, items)).resolved()
        candidate = Candidate(items, replace(config, name="tune"))
        found.setdefault(_without_idle(candidate.config).fingerprint(), candidate)
    return list(found.values())


def on_public(values: Mapping[str, Any], dataset: str) -> dict[str, Any]:
    """The same settings with another data set; files of the private one are left out."""
    data = {name: value for name, value in values.get("data", {}).items() if name != "folder"}
    return {**values, "data": {**data, "source": dataset}}


def _without_idle(config: Config) -> Config:
    """With settings that change nothing at their defaults: κ where λ = 0, and a fixed λ_s where it is adaptive."""
    method = config.algorithm
    if not isinstance(method, FedFDP):
        return config
    if method.lam == 0:
        method = replace(method, kappa=FedFDP().kappa)
    if method.server_rule == "adaptive":
        method = replace(method, server_lam=FedFDP().server_lam)
    return replace(config, algorithm=method)
