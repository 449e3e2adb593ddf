"""Settings as TOML holds them, in layers: a preset, files that build on it, and overrides on top.

Checks no setting: `config.py` does, once all layers are merged.
"""

import dataclasses
import os
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedfdp.algorithms import Algorithm
from fedfdp.core.errors import SettingError, nearest
from fedfdp.core.settings import read_toml
from fedfdp.data.files.paths import looks_like_path
from fedfdp.data.named.catalog import named
from fedfdp.models.pretrained import PREFIX

PRESETS = Path(__file__).parent / "presets"

Settings = dict[str, Any]  # what a TOML file holds: values, and sections of them


def presets() -> list[str]:
    """The names of the presets."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def layered(source: str, overrides: Iterable[str] = ()) -> Settings:
    """The settings of a preset or file, with overrides. `base = "default"` builds a file on a preset or another file.

    Paths in a file are relative to that file, paths in overrides to the current folder.
    """
    overrides = list(overrides)
    values, beside = _read(source)
    if "source" in _section(override({}, overrides), "data"):
        beside = Path()
    return _placed(override(values, overrides), beside)


def override(values: Settings, overrides: Iterable[str]) -> Settings:
    """The settings with each `section.setting=value` laid on top."""
    for item in overrides:
        name, equals, text = item.partition("=")
        if not equals:
            raise SettingError("--set", item, "expected section.setting=value", "for example --set rounds=100")
        *sections, setting = name.strip().split(".")
        layer: Settings = {setting: _literal(text.strip())}
        for section in reversed(sections):
            layer = {section: layer}
        values = merge(values, layer)
    return values


def merge(below: Settings, above: Settings) -> Settings:
    """`above` laid on top of `below`. If the method or model changes, only settings that all of them have are kept."""
    merged = dict(below)
    for name, value in above.items():
        if name in ("privacy", "features") and value in ("none", False):
            merged.pop(name, None)
        elif isinstance(value, dict) and isinstance(merged.get(name), dict):
            kept = merged[name]
            if name in ("algorithm", "features", "model") and value.get("name", kept.get("name")) != kept.get("name"):
                shared = {f.name for f in dataclasses.fields(Algorithm)} if name == "algorithm" else set()
                kept = {key: setting for key, setting in kept.items() if key in shared}
            merged[name] = merge(kept, value)
        else:
            merged[name] = value
    return merged


def _read(source: str, above: tuple[Path, ...] = ()) -> tuple[Settings, Path]:
    """A file's settings laid on those that it builds on, and the folder that its `data.source` is relative to."""
    path = Path(source)
    if path.suffix != ".toml":
        path = PRESETS / f"{source}.toml"
        if not path.is_file():
            named_in = f"base of {above[-1]}" if above else "preset"
            raise SettingError(named_in, source, nearest(source, presets()), "or the path of a .toml file")
    values = read_toml(path, f"base of {above[-1]}" if above else "config")
    if path.resolve() in above:
        raise SettingError("base", str(path), f"builds on itself, by way of {above[-1]}", "leave base out of one")
    values = _beside(values, path.parent)
    base, own = values.pop("base", None), _section(values, "data")
    if isinstance(own.get("folder"), str):
        values["data"] = {**own, "folder": os.path.abspath(path.parent / own["folder"])}
    if base is None:
        return values, path.parent
    if not isinstance(base, str):
        raise SettingError("base", base, "the name of a preset or the path of a .toml file", f"correct it in {path}")
    below, beside = _read(str(path.parent / base) if base.endswith(".toml") else base, (*above, path.resolve()))
    return merge(below, values), path.parent if "source" in own else beside


def _beside(values: Settings, folder: Path) -> Settings:
    """Makes the folders of a pretrained model and of tokenizers absolute: in a file they are relative to it."""
    model, data = _section(values, "model"), _section(values, "data")
    if isinstance(name := model.get("name"), str) and name.startswith(PREFIX):
        values = {**values, "model": {**model, "name": PREFIX + os.path.abspath(folder / name.removeprefix(PREFIX))}}
    columns = _section(data, "columns")
    texts = {n: c for n, c in columns.items() if isinstance(c, dict) and isinstance(c.get("tokenizer"), str)}
    placed = {n: {**c, "tokenizer": os.path.abspath(folder / c["tokenizer"])} for n, c in texts.items()}
    return {**values, "data": {**data, "columns": {**columns, **placed}}} if placed else values


def _placed(values: Settings, beside: Path) -> Settings:
    """Makes the paths of data files absolute: `source` is below `folder` if that is given, and else below `beside`."""
    section = _section(values, "data")
    source, folder = section.get("source"), section.get("folder")
    placed: Settings = {}
    if isinstance(folder, str):
        placed["folder"] = os.path.abspath(folder)
        if isinstance(source, str) and not looks_like_path(source) and not named(source, Path(folder)):
            placed["source"] = os.path.join(".", source)  # so that it is taken for a path everywhere
    elif isinstance(source, str) and not named(source, beside):
        placed["source"] = os.path.abspath(beside / source)
    return {**values, "data": {**section, **placed}} if placed else values


def _section(values: Settings, name: str) -> Settings:
    """A section as it was written; empty if there is none."""
    section = values.get(name)
    return section if isinstance(section, dict) else {}


def _literal(text: str) -> object:
    """A TOML value; anything else is taken as a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
