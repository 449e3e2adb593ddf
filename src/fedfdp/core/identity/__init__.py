"""What a function, an object or a model computes, as a digest: different for whatever may compute something else.

Code is identified by its instructions, closures, defaults and constants, and by the globals that it names; objects by
their class and all that they hold; a model also by its buffers and frozen weights, but not by the weights that are
trained. Nothing is run. What holds state that cannot be read (an open file, a generator) gets a digest that no other
object has, in this process or another.
"""

from collections.abc import Mapping
from typing import NamedTuple

from fedfdp.core.identity.hashing import until_gone
from fedfdp.core.identity.held import slots_of
from fedfdp.core.identity.reader import Reader

__all__ = ["Identity", "digests", "examine", "identity", "remembered", "slots_of"]

_remembered: dict[int, str] = {}


class Identity(NamedTuple):
    """The digest, and the place of the first part that could not be read; empty where everything could."""

    digest: str
    unknown: str = ""


def identity(thing: object) -> str:
    """The digest of the thing, read anew at every call."""
    return examine(thing).digest


def remembered(thing: object) -> str:
    """The digest as it was when first asked for: for a key that is needed in every pass. Later changes go unseen."""
    known = _remembered.get(id(thing))
    if known is None:
        known = _remembered[id(thing)] = identity(thing)
        until_gone(thing, _remembered)
    return known


def examine(thing: object, name: str = "") -> Identity:
    """The identity of the thing. `name` begins the place of a part that cannot be read; the class by default."""
    reader, name = Reader(thing), name or type(thing).__name__
    try:
        return Identity(reader.digest(thing, name).hex(), reader.unknown)
    except RecursionError:
        return Identity(Reader(None).unread(thing, name).hex(), f"{name} (nested too deeply)")


def digests(things: Mapping[str, object], known: Mapping[int, object]) -> tuple[dict[str, str], str]:
    """A digest for each of many things, and the place of the first part that could not be read.

    For comparing with later ones: what a cache holds counts too. `known` names tensors by their id(); of these the name
    counts, not the numbers.
    """
    reader = Reader(None, known, caches=True)
    return {name: reader.digest(thing, name).hex() for name, thing in things.items()}, reader.unknown
