"""Where code comes from (Python, an installed package, a file of the user's), and which names it looks up."""

import dis
import os
import sys
import sysconfig
import types
from functools import cache
from typing import NamedTuple

# The program's own surroundings. Their code is identified by name alone: a newer version of it is not another run.
NAMED = ("fedfdp", "numpy", "torch", "numba")
# Where modules of this package were when runs began to be identified: a module that moved does not make another run.
MOVED = {"fedfdp.models.learner": "fedfdp.learner", "fedfdp.models.losses": "fedfdp.learner"}
MOVED |= {f"fedfdp.core.{name}": f"fedfdp.{name}" for name in ("errors", "ranges", "records", "weights")}
MOVED |= {f"fedfdp.algorithms.{name}": "fedfdp.algorithms.base" for name in ("record_types", "local_round")}


@cache
def surrounding(module: str) -> bool:
    """Whether the module is part of Python, or of one of the libraries that this program is made of."""
    top = _top(module)
    if top in NAMED or top == "builtins":
        return True
    file = getattr(sys.modules.get(top), "__file__", None)  # the user's file may have the name of one of Python's
    return top in sys.stdlib_module_names and (file is None or _below(file, "stdlib", "platstdlib"))


def installed(module: str) -> bool:
    """Whether the module belongs to an installed package, rather than being a file of the user's."""
    return _installed(_top(module))


@cache
def _installed(top: str) -> bool:
    return _below(getattr(sys.modules.get(top), "__file__", None) or "", "purelib", "platlib")


def _below(file: str, *places: str) -> bool:
    return any(file.startswith(sysconfig.get_path(place) + os.sep) for place in places)


@cache
def version(module: str) -> str:
    """The version of the module's package; empty for the program's own surroundings."""
    return "" if surrounding(module) else str(getattr(sys.modules.get(_top(module)), "__version__", ""))


def home(module: object) -> str:
    """The module's name, or the one that it had before it moved."""
    return MOVED.get(str(module), str(module))


def _top(module: str) -> str:
    return module.partition(".")[0]


def found_at_home(kind: type) -> bool:
    """Whether the module of this class has this very class under its name, so that the name says what it is."""
    found: object = sys.modules.get(kind.__module__)
    for part in kind.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is kind


class Lookups(NamedTuple):
    """The names that code looks up, and functions within it."""

    globals: frozenset[str]
    attributes: frozenset[str]
    imports: frozenset[str]


@cache
def lookups(code: types.CodeType) -> Lookups:
    """The names that this code looks up."""
    found: dict[str, set[str]] = {"GLOBAL": set(), "IMPORT_NAME": set(), "": set()}
    for step in dis.get_instructions(code):
        if isinstance(step.argval, str):
            kind = "GLOBAL" if step.opname in ("LOAD_GLOBAL", "LOAD_NAME") else step.opname
            found[kind if kind in found else ""].add(step.argval)
    inner = [lookups(constant) for constant in code.co_consts if isinstance(constant, types.CodeType)]
    own = Lookups(*[frozenset(found[kind]) for kind in ("GLOBAL", "", "IMPORT_NAME")])
    return Lookups(*[frozenset().union(*names) for names in zip(own, *inner, strict=True)])
