"""Digests of parts, and entries in tables that are kept as long as an object lives."""

import hashlib
import os
import weakref
from typing import TypeVar

V = TypeVar("V")
_tokens: dict[int, bytes] = {}
_immortal: list[object] = []


def hashed(*parts: str | bytes | int) -> bytes:
    """A digest of the parts, each with its length, so that no other parts give the same bytes."""
    sha = hashlib.sha256()
    for part in parts:
        raw = part if isinstance(part, bytes) else str(part).encode()
        sha.update(b"%d:" % len(raw) + raw)
    return sha.digest()[:16]


_scalars: dict[tuple[type, object], bytes] = {}
_SCALARS_KEPT = 2**16


def of_scalar(value: object) -> bytes:
    """The digest of a number, a text or a constant, which most parts of a thing are. Of short ones it is remembered."""
    kind = type(value)
    if kind not in (str, int, bool, type(None)) or (kind is str and len(value) > 200):  # type: ignore[arg-type]
        return hashed(kind.__name__, repr(value))  # of floats 0 equals −0, and is another number
    known = _scalars.get((kind, value))
    if known is None:
        if len(_scalars) >= _SCALARS_KEPT:
            _scalars.clear()
        known = _scalars[kind, value] = hashed(kind.__name__, repr(value))
    return known


def token(thing: object) -> bytes:
    """Random bytes that this very object has as long as it is there, and nothing else."""
    if id(thing) not in _tokens:
        _tokens[id(thing)] = os.urandom(16)
        until_gone(thing, _tokens)
    return _tokens[id(thing)]


def until_gone(thing: object, table: dict[int, V]) -> None:
    """Deletes the thing's entry when the thing is deleted: another object may get the same id()."""
    try:
        weakref.finalize(thing, table.pop, id(thing), None).atexit = False
    except TypeError:
        _immortal.append(thing)  # it takes no weak reference, so it is kept
