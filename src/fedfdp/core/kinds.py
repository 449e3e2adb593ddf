"""Whether settings that were given in Python are of the kinds that their record declares: numbers, words, choices."""

import functools
import types
import typing
from numbers import Integral, Real
from typing import Literal

from fedfdp.core.errors import SettingError, nearest

_WORDS: dict[object, str] = {float: "a number", int: "a whole number", bool: "true or false", str: "a text"}
_KINDS: dict[object, type] = {float: Real, int: Integral, bool: bool, str: str}


def check_kinds(record: object, section: str) -> None:
    """Raises a SettingError for the first setting of a wrong kind; None is left open, and other kinds pass."""
    for name, kinds in _declared(type(record)):  # type: ignore[arg-type]
        value = getattr(record, name)
        if value is not None and not any(_fits(value, kind) for kind in kinds):
            choices = [choice for kind in kinds for choice in typing.get_args(kind)]
            allowed = nearest(str(value), map(str, choices)) if choices else _in_words(kinds)
            shown = value if isinstance(value, str | int | float | None) else type(value)
            raise SettingError(f"{section}.{name}", shown, allowed)


def _in_words(kinds: tuple[object, ...]) -> str:
    return " or ".join(_WORDS[kind] for kind in kinds if kind in _WORDS)


@functools.cache
def _declared(kind: type) -> tuple[tuple[str, tuple[object, ...]], ...]:
    """The fields that are a number, a word, a choice, or one of several of these; and which."""
    found = []
    for name, hint in typing.get_type_hints(kind).items():
        several = typing.get_origin(hint) in (typing.Union, types.UnionType)
        kinds = typing.get_args(hint) if several else (hint,)
        if getattr(kind, name, ...) is None:  # left open until a run begins
            kinds = (*kinds, type(None))
        known = all(k in _KINDS or k is type(None) or typing.get_origin(k) is Literal for k in kinds)
        if known and typing.get_origin(hint) is not typing.ClassVar:
            found.append((name, kinds))
    return tuple(found)


def _fits(value: object, kind: object) -> bool:
    if typing.get_origin(kind) is Literal:
        return value in typing.get_args(kind)
    if isinstance(value, bool) and kind is not bool:
        return False
    return kind is not type(None) and isinstance(value, _KINDS[kind])
