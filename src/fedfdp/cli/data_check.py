"""fedfdp data check: what a data holder should know before training. Its output is not private, and it says so."""

import dataclasses
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedfdp.data.files.describe import Description
    from fedfdp.data.validation import Review

MOST_ROWS = 24  # of holders, in a table
NOTICE = "For the data holder's eyes: this reads private records as they are. Do not pass it on."


def check(
    source: Annotated[str, typer.Argument(help="A run's .toml file, a preset, or a data file or folder.")],
    set_: Annotated[list[str] | None, typer.Option("--set", help="section.setting=value, as often as needed.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on stdout.")] = False,
) -> None:
    """Look over your own records before training: shapes, types, classes, sizes, duplicates, with advice."""
    from fedfdp.runs.layers import presets

    if source.endswith(".toml") or source in presets():
        review = _reviewed(source, set_ or [])
        found, show = dataclasses.asdict(review), partial(_show_review, review)
    else:
        from fedfdp.data.files.describe import describe

        description = describe(Path(source))
        settings = _scaffold(description)
        found = {**dataclasses.asdict(description), "settings": settings}
        show = partial(_show_description, description, settings)
    if as_json:
        print(json.dumps({"notice": NOTICE, **found}))
    else:
        print(NOTICE)
        show()


def _reviewed(source: str, overrides: list[str]) -> "Review":
    from rich.console import Console

    from fedfdp.cli.data_progress import Progress
    from fedfdp.data.from_files import place_of
    from fedfdp.data.named.catalog import named
    from fedfdp.data.schema import class_names
    from fedfdp.data.validation import review, review_columns
    from fedfdp.runs import config as configs
    from fedfdp.runs.build import federation_of, fitted

    config = configs.load(source, overrides)
    with Progress(Console(stderr=True), config.data.source) as say:
        federation = federation_of(config, progress=say)
    config = fitted(config, federation)
    own = not named(config.data.source)
    columns = review_columns(config.data, place_of(config.data.source, config.data.folder)) if own else []
    step = config.algorithm.events(None, config.privacy) if config.privacy else ()
    return review(
        federation,
        config.privacy,
        step=step,
        advice=[*config.algorithm.advice(federation.classes), *_unchecked(config.data.unchecked or ())],
        columns=columns,
        names=class_names(config.data),
    )


def _unchecked(names: "Sequence[str]") -> list[str]:
    """That facts which were read from the records are still in the config."""
    if not names:
        return []
    read = f"what data.columns, classes or target say of {', '.join(names)} was read from the records (data.unchecked)"
    return [f"{read}: replace each by a public fact, then take its name off that list"]


def _show_review(found: "Review") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    shape = "×".join(map(str, found.shape)) or "1"
    kind = f"{len(found.classes)} classes" if found.classes else found.task
    sizes = f"{found.records:,} records of shape {shape}, {len(found.holders):,} holders, {kind}"
    console.print(f"{found.name}: {sizes}", style="bold", highlight=False, soft_wrap=True)
    few = found.classes if len(found.classes) <= 10 else ()
    holders = Table("holder", "train", "test", *few, box=None, pad_edge=False)
    for column in holders.columns[1:]:
        column.justify = "right"
    ordered = sorted(found.holders, key=lambda holder: -holder.train)
    shown = found.holders if len(ordered) <= MOST_ROWS else (*ordered[: MOST_ROWS // 2], *ordered[-MOST_ROWS // 2 :])
    for holder in shown:
        counts = [f"{count:,}" for count in holder.classes or ()] if few else []
        holders.add_row(holder.name, f"{holder.train:,}", f"{holder.test:,}", *counts)
    console.print(holders)
    if len(shown) < len(found.holders):
        most, least, middle_one = (ordered[at].train for at in (0, -1, len(ordered) // 2))
        middle = f"{most:,} to {least:,} training records, the middle one {middle_one:,}"
        more = f"the {len(shown) // 2} largest and the {len(shown) // 2} smallest of {len(ordered):,} holders: {middle}"
        console.print(more, highlight=False, soft_wrap=True)
    if found.columns:
        columns = Table("column", "public fact", "missing", "outside", box=None, pad_edge=False)
        for entry in found.columns:
            columns.add_row(entry.name, entry.kind, f"{entry.missing:,}", f"{entry.outside:,}")
        console.print(columns)
    console.print(f"repeated records: {found.repeated:,}; different ones: {found.different:,}", highlight=False)
    for line in found.advice or ("no problem found",):
        print(f"- {line}")


def _scaffold(found: "Description") -> str:
    """A run.toml for it; empty where it is no table."""
    from fedfdp.data.scaffold import guessed, scaffold

    path = Path(found.path)
    return scaffold(found, path.name, path.name.split(".")[0], guessed(found.columns)) if found.columns else ""


def _show_description(found: "Description", settings: str) -> None:
    from rich.console import Console
    from rich.table import Table

    from fedfdp.data.files.profile import FEW

    console = Console()
    console.print(f"{found.path}: {found.records:,} records", style="bold", highlight=False, soft_wrap=True)
    table = Table("name", "type", *(["missing", "different values"] if found.columns else []), box=None, pad_edge=False)
    for part in found.parts:
        table.add_row(part.name, part.type)
    for column in found.columns:
        many = f"{column.different}" if column.different <= FEW else f"more than {FEW}"
        table.add_row(column.name, column.kind, f"{column.missing:,}", many)
    console.print(table)
    if settings:
        print("a run.toml for it, with a guess at holder and label; `fedfdp init` asks for them and writes the file:\n")
        print(settings)
