"""Imports point one way: no cycle among modules, and nothing imports what stands below it in docs/architecture.md."""

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE, PAGE = ROOT / "src" / "fedfdp", ROOT / "docs" / "architecture.md"


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py"}


def imported(node: ast.AST) -> Iterator[str]:
    """Modules of ours that are imported anywhere below, also within functions; not what only the type checker reads."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Import):
            names = [alias.name for alias in child.names]
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "imports are absolute here"
            inside = [f"{child.module}.{alias.name}" for alias in child.names]
            names = [name if name.removeprefix("fedfdp.") in MODULES else str(child.module) for name in inside]
        else:
            names = []
            yield from imported(child)
        yield from (name.removeprefix("fedfdp.") for name in names if name.startswith("fedfdp."))


IMPORTS = {name: set(imported(ast.parse(path.read_text(encoding="utf-8")))) for name, path in MODULES.items()}


def layers() -> dict[str, int]:
    """How far down the list of the page each name stands."""
    listed = re.search(r"<!-- shown: the layers -->\n```\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert listed is not None
    return {name: depth for depth, line in enumerate(listed[1].splitlines()) for name in line.split()}


def layer(module: str, known: dict[str, int]) -> int:
    while module not in known:
        assert module, "a module that is in no layer: add it to docs/architecture.md"
        module = module.rpartition(".")[0]
    return known[module]


def test_no_cycle():
    try:
        list(TopologicalSorter(IMPORTS).static_order())
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


def test_nothing_imports_what_stands_below_it():
    known = layers()
    wrong = {(a, b) for a, found in IMPORTS.items() for b in found if layer(b, known) > layer(a, known)}
    assert not wrong


def test_the_list_names_modules_that_exist():
    assert set(layers()) <= set(MODULES)


def test_the_walk_sees_imports_of_every_kind():
    source = """
import fedfdp.core.errors
from fedfdp.core import weights as w
from fedfdp.data import Federation
if TYPE_CHECKING:
    from fedfdp.cli import main
def late():
    from fedfdp.runs.folder import RunFolder
"""
    assert set(imported(ast.parse(source))) == {"core.errors", "core.weights", "data", "runs.folder"}
    assert {"runs.train", "runs.session"} <= set(IMPORTS["runs.build"])
    assert "deploy.coordinator" in IMPORTS["engines.flower.server_app"]


def test_one_file_of_each_process_uses_flower_s_internals():
    """The coordinator's, and the node's: a node that loaded the SuperLink would load its database and web server."""
    public = re.compile(r"from flwr\.(app|clientapp|serverapp) import |import flwr$")
    found = set()
    for name, path in MODULES.items():
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
        if any(re.match(r"(from|import) flwr\b", line) and not public.match(line) for line in lines):
            found.add(name)
    assert found == {"engines.flower.superlink", "engines.flower.worker"}


def test_the_page_names_files_that_exist():
    named = set(re.findall(r"`([\w/]+\.(?:py|js))`", PAGE.read_text(encoding="utf-8")))
    folders = [ROOT / name for name in ("src", "tests", "docs", "examples", "scripts")]
    files = [path.as_posix() for folder in folders for path in folder.rglob("*.*") if path.suffix in (".py", ".js")]
    missing = [name for name in named if "NAME" not in name and not any(file.endswith(f"/{name}") for file in files)]
    assert len(named) > 20
    assert not missing
