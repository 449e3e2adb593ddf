"""fedfdp bench: how fast and how large the private step and whole rounds are, beside other ways to compute them."""

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedfdp.core.errors import SettingError

if TYPE_CHECKING:
    from fedfdp.bench.cases import Case
    from fedfdp.bench.suite import Row

MODEL_SECONDS = 1.0  # a peer may take with a model of another library
QUICK_SECONDS, SECONDS = 3.0, 10.0  # a peer may take in a case


def bench(
    quick: Annotated[bool, typer.Option("--quick", help="Only the MNIST CNN at batch 300, in under a minute.")] = False,
    what: Annotated[
        str | None, typer.Option(help="Only step, or only round; or models: those of other libraries.")
    ] = None,
    models: Annotated[
        str,
        typer.Option(
            help="Only these: mnist-cnn,cifar-cnn,mlp,transformer,small-cnn; of --what models with ; between; or beyond"
        ),
    ] = "",
    batches: Annotated[
        str, typer.Option(help="Batch sizes of the steps; 32,300,2048 if left out, of --what models 16.")
    ] = "",
    clients: Annotated[str, typer.Option(help="Numbers of clients of the rounds; 10,100,1000 if left out.")] = "",
    peers: Annotated[
        str, typer.Option(help="Only these beside plain: ours,unwatched,opacus_hooks,opacus_ghost,vmap,loop.")
    ] = "",
    seconds: Annotated[float | None, typer.Option(help="About how long to time a peer in each case.")] = None,
    memory: Annotated[bool, typer.Option(help="Measure peak memory, each in a process of its own.")] = True,
    first: Annotated[
        bool, typer.Option("--first", help="Memory of a model's first step, which proves the pass, not of later ones.")
    ] = False,
    threads: Annotated[int | None, typer.Option(help="Threads; one per core if left out.")] = None,
    png: Annotated[Path | None, typer.Option(help="Draw the result into this file.")] = None,
    markdown: Annotated[
        Path | None, typer.Option(help="Write the tables into this file, between its marker lines if it has them.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON, and nothing else.")] = False,
    rows_file: Annotated[
        Path | None,
        typer.Option("--rows", help="With --what models: keep rows in this file, and go on from those in it."),
    ] = None,
    profiled: Annotated[
        bool, typer.Option("--profile", help="Instead: where the time of a round goes, with 10 and 1000 clients.")
    ] = False,
) -> None:
    """Measure the private step and whole rounds: ratios to plain SGD, and peak memory.

    For example: fedfdp bench --quick, or: fedfdp bench --models mlp --batches 300 --peers ours
    """
    if profiled:
        _set_threads(threads)
        _profile(_names(models) or ["small-cnn", "mnist-cnn"], _counts("clients", clients) or [10, 1000], markdown)
        return
    if what == "models":
        _set_threads(threads or 1)
        names, counts = [part for part in models.split(";") if part], _counts("batches", batches)
        _models(names, counts, seconds or MODEL_SECONDS, rows_file, markdown, as_json)
        return
    able, chosen = _chosen(peers), _cases(quick, what, models, batches, clients)
    _set_threads(threads)
    rows = _measured(chosen, able, seconds or (QUICK_SECONDS if quick else SECONDS), memory, first)
    if png is not None:
        from fedfdp.bench.plot import draw

        draw(rows, png)
    if markdown is not None:
        from fedfdp.bench import tables

        tables.write_markdown(tables.markdown(rows, _conditions()), markdown)
    if as_json:
        print(json.dumps([asdict(row) for row in rows]))
    else:
        _show(rows)


def _profile(models: list[str], clients: list[int], markdown: Path | None) -> None:
    from rich.console import Console
    from rich.table import Table

    from fedfdp.bench import profile, tables
    from fedfdp.bench.models import MODELS
    from fedfdp.core.errors import nearest

    for name in models:
        if name not in MODELS:
            raise SettingError("models", name, nearest(name, MODELS))
    head, lines = profile.table([profile.profile(model, count) for model in models for count in clients])
    shown = Table(*head)
    for line in lines:
        shown.add_row(*line)
    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    console.print(shown)
    console.print(_conditions())
    if markdown is not None:
        page = tables.markdown_table(head, lines) + f"\n\n{_conditions()}\n"
        tables.write_markdown(page, markdown, marker="fedfdp bench --profile")


def _models(
    names: list[str], batches: list[int], seconds: float, rows: Path | None, markdown: Path | None, as_json: bool
) -> None:
    """The table of named models of other libraries."""
    from rich.console import Console
    from rich.table import Table

    from fedfdp.bench import tables
    from fedfdp.bench.named import GROUPS
    from fedfdp.bench.named.rows import measured

    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    found = []
    for row in measured(names, seconds=seconds, batches=batches, rows=rows):
        print(f"{row.package}: {row.name}: {row.failed or row.path}", file=sys.stderr)
        found.append(row)
    head, lines = tables.named_table(found)
    if markdown is not None:
        page = f"{_conditions()}, time of the processor\n\n{tables.markdown_table(head, lines)}\n"
        group = f" --models {names[0]}" if len(names) == 1 and names[0] in GROUPS else ""
        tables.write_markdown(page, markdown, marker=f"fedfdp bench --what models{group}")
    if as_json:
        print(json.dumps([asdict(row) for row in found]))
        return
    shown = Table(*head)
    for line in lines:
        shown.add_row(*line)
    console.print(shown)
    console.print(_conditions())


def _cases(quick: bool, what: str | None, models: str, batches: str, clients: str) -> "list[Case]":
    from fedfdp.bench.cases import StepCase, select

    if quick:
        if what or models or batches or clients:
            raise SettingError("quick", quick, "is one case", "leave it out to choose others")
        return [StepCase("mnist-cnn", 300)]
    counts = {"batches": _counts("batches", batches), "clients": _counts("clients", clients)}
    return select(what=what, models=_names(models), **counts)


def _chosen(peers: str) -> list[str]:
    from fedfdp.bench.suite import choose

    able, missing = choose(_names(peers))
    for peer, package in missing.items():
        print(f"{peer}: skipped, {package} is not installed", file=sys.stderr)
    return able


def _measured(cases: "list[Case]", peers: list[str], seconds: float, memory: bool, first: bool) -> "list[Row]":
    from rich.console import Console

    from fedfdp.bench.suite import measure

    console, started = Console(stderr=True, highlight=False), time.monotonic()
    with console.status("starting") as status:

        def tell(done: float, work: float, doing: str) -> None:
            rate = done / (time.monotonic() - started)
            left = f", {_clock((work - done) / rate)} left" if done else ""
            if console.is_terminal:
                status.update(f"{doing}{left}")
            else:
                console.print(f"{doing}{left}")

        return list(measure(cases, peers, seconds=seconds, memory=memory, first=first, tell=tell))


def _show(rows: "list[Row]") -> None:
    from rich.console import Console
    from rich.table import Table

    from fedfdp.bench.tables import grids, notes

    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    for grid in grids(rows):
        console.print(grid.title)
        table = Table()
        for place, name in enumerate(grid.head):
            table.add_column(name, justify="left" if place == 0 else "right")
        for line in grid.lines:
            table.add_row(*line)
        console.print(table)
    for text in notes(rows):
        console.print(text)
    console.print(_conditions())


def _conditions() -> str:
    """What the numbers hold for."""
    import platform
    from importlib.metadata import PackageNotFoundError, version

    import torch

    packages = []
    for package in ("torch", "opacus"):
        try:
            packages.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            packages.append(f"no {package}")
    threads = torch.get_num_threads()
    return f"{threads} thread{'s' * (threads > 1)}, {', '.join(packages)}, Python {platform.python_version()}"


def _set_threads(threads: int | None) -> None:
    if threads is None:
        return
    if threads < 1:
        raise SettingError("threads", threads, "must be 1 or more", "leave it out for one per core")
    import torch

    torch.set_num_threads(threads)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _counts(option: str, text: str) -> list[int]:
    try:
        return [int(name) for name in _names(text)]
    except ValueError:
        raise SettingError(option, text, "must be whole numbers with commas between them") from None


def _clock(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
