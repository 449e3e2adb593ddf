"""Whatever is public says what it is, where it is declared: classes, functions, settings, and the arguments of the few
functions that people call. A setting's words are the comment on its line, or a string below it."""

import ast
import dataclasses
import inspect
import re
import textwrap
import typing

import pytest

import fedfdp
from fedfdp.algorithms import Algorithm
from fedfdp.engines.flower.policy import NodeConfig

EXPORTED = {name: getattr(fedfdp, name) for name in fedfdp.__all__ if name != "__version__"}
CLASSES = [thing for thing in EXPORTED.values() if inspect.isclass(thing)]
CALLED = [fedfdp.train, fedfdp.load, fedfdp.Federation.from_clients, fedfdp.Federation.partition]


def ours(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) and kind.__module__.startswith("fedfdp.")


def settings() -> list[type]:
    """Every dataclass that is exported, or a section of a run's or a node's config; with what they derive from."""
    left, found = [*CLASSES, NodeConfig, Algorithm], []
    while left:
        kind = left.pop()
        if not ours(kind) or kind in found:
            continue
        found.append(kind)
        left += kind.__mro__[1:]
        for hint in typing.get_type_hints(kind).values():
            left += [part for part in (hint, *typing.get_args(hint)) if inspect.isclass(part)]
    return sorted(found, key=lambda kind: kind.__qualname__)


def undocumented(kind: type) -> list[str]:
    """Fields that are new in this class and have neither a comment on their line nor a string below it."""
    source = textwrap.dedent(inspect.getsource(kind))
    lines, (body,) = source.splitlines(), ast.parse(source).body
    inherited = {name for base in kind.__mro__[1:] for name in getattr(base, "__annotations__", {})}
    missing = []
    for field, after in zip(body.body, [*body.body[1:], None], strict=True):
        if not isinstance(field, ast.AnnAssign) or field.target.id in inherited:
            continue
        text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        if not text and not re.search(r"  # (?!type:|noqa)\w*\S", lines[field.end_lineno - 1]):
            missing.append(field.target.id)
    return missing


@pytest.mark.parametrize("kind", settings(), ids=lambda kind: kind.__qualname__)
def test_every_setting_says_what_it_is(kind):
    assert undocumented(kind) == []


@pytest.mark.parametrize("name", EXPORTED)
def test_every_public_thing_and_its_methods_have_a_docstring(name):
    thing = EXPORTED[name]
    bare = [] if (thing.__doc__ or "").strip() and not thing.__doc__.startswith(f"{name}(") else [name]
    if inspect.isclass(thing):
        fields = {name for base in thing.__mro__ for name in getattr(base, "__annotations__", {})}
        members = [member for member in vars(thing) if not member.startswith("_") and member not in fields]
        bare += [member for member in members if not inspect.getdoc(getattr(thing, member))]
    assert bare == []


@pytest.mark.parametrize("function", CALLED, ids=lambda function: function.__qualname__)
def test_every_argument_and_the_result_are_described(function):
    told = inspect.getdoc(function) or ""
    described = re.findall(r"^    (\w+): \S", told.partition("Args:")[2].partition("Returns:")[0], flags=re.MULTILINE)
    assert described == list(inspect.signature(function).parameters)
    assert "Returns:\n" in told


def test_the_check_sees_what_is_missing():
    assert undocumented(Some) == ["third"]


@dataclasses.dataclass
class Some:
    """For the test above."""

    first: int  # with a comment
    second: int
    """With a string."""
    third: int
