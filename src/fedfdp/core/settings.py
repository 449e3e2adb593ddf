"""From plain dicts to the library's own dataclasses and back, with types, names and ranges checked."""

import dataclasses
import tomllib
import typing
from datetime import date, time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from fedfdp.core.errors import SettingError, nearest

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# What is allowed, for those kinds of which pydantic speaks in terms of Python.
_WORDS = dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "a whole number")
_WORDS |= dict.fromkeys(("float_type", "float_parsing"), "a number")
_WORDS |= dict.fromkeys(("bool_type", "bool_parsing"), "true or false")
_WORDS |= dict.fromkeys(("dict_type", "dataclass_type"), "settings by name, as { name = value }")
_WORDS |= dict.fromkeys(("tuple_type", "list_type"), 'a list, as ["a", "b"]') | {"string_type": 'a text, as "word"'}

T = TypeVar("T", bound="DataclassInstance")


def parse(kind: type[T], values: object, section: str) -> T:
    """The dataclass `kind` from a section of a config; a SettingError names the setting that does not fit."""
    if not isinstance(values, dict):
        raise SettingError(section, values, "a section of settings", f"write [{section}] and its settings below it")
    known = _known_names(kind, values, section)
    defaults = {field.name: field.default for field in dataclasses.fields(kind)}
    values = {name: None if _unset(kind, name, value) else value for name, value in values.items()}
    values = {name: value for name, value in values.items() if value is not None or defaults[name] is not None}
    try:
        return TypeAdapter(kind).validate_python(_dates_as_text(values))
    except ValidationError as invalid:
        first = invalid.errors()[0]
        place = ".".join(filter(None, [section, *(str(part) for part in first["loc"] if part in known)]))
        raise SettingError(place, first["input"], _WORDS.get(first["type"], first["msg"].lower())) from None


def _known_names(kind: type["DataclassInstance"], values: dict[str, Any], section: str) -> set[str]:
    """The names of all settings that there are, sections within it too; raises for one that is given and is not."""
    fields = {field.name: field.type for field in dataclasses.fields(kind)}
    gone: dict[str, str] = getattr(kind, "GONE", {})  # settings of earlier versions, and what takes their place
    known = set(fields)
    for name, value in values.items():
        if name in gone:
            raise SettingError(f"{section}.{name}", value, "there is no such setting any more", gone[name])
        if name not in fields:
            raise SettingError(f"{section}.{name}", value, f"no such setting; {nearest(name, fields)}")
        kinds = _kinds(fields[name])
        inner_values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else [value]
        if kinds & {int, float} and bool not in kinds and any(type(one) is bool for one in inner_values):
            raise SettingError(f"{section}.{name}", value, "a number" if float in kinds else "a whole number")
        for inner in (fields[name], *typing.get_args(fields[name])) if isinstance(value, dict) else ():
            if isinstance(inner, type) and dataclasses.is_dataclass(inner):
                known |= _known_names(inner, value, f"{section}.{name}")
    return known


def _kinds(declared: object) -> set[object]:
    """All types that a setting may be of."""
    parts = [part for part in typing.get_args(declared) if not isinstance(part, list)]  # of a Callable's arguments
    return {declared, *(kind for part in parts for kind in _kinds(part))}


def _dates_as_text(value: object) -> object:
    """TOML's dates and times as text, as JSON and every file that keeps settings can hold them."""
    if isinstance(value, dict):
        return {name: _dates_as_text(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_dates_as_text(entry) for entry in value]
    return value.isoformat() if isinstance(value, date | time) else value


def _unset(kind: type["DataclassInstance"], name: str, value: object) -> bool:
    """Whether the value is "none" and stands for None, which TOML cannot write."""
    field = next(field for field in dataclasses.fields(kind) if field.name == name)
    allowed = typing.get_args(field.type)
    return value == "none" and (type(None) in allowed or field.default is None) and not {str, "none"} & set(allowed)


def left_out(settings: object, name: str) -> bool:
    """Whether there is such a setting, and it was not given: None until it is chosen, whatever its type says."""
    return getattr(settings, name, "no such setting") is None


def plain(settings: object) -> dict[str, Any]:
    """A dataclass as a dict of what TOML can hold. None is left out, or "none" if the default is not None."""
    values = dataclasses.asdict(settings)  # type: ignore[call-overload]
    defaults = {field.name: field.default for field in dataclasses.fields(settings)}  # type: ignore[arg-type]
    open_ones = {name: "none" for name, value in values.items() if value is None and defaults[name] is not None}
    return {name: value for name, value in values.items() if value is not None} | open_ones


def read_toml(path: Path, named_in: str = "config") -> dict[str, Any]:
    """What a TOML file says. `named_in`: the setting that an error names if there is no such file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingError(named_in, str(path), f"cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError("config", str(path), f"not valid TOML: {error}") from None
