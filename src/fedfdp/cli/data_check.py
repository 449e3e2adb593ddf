"""fedfdp data check: what a data holder should know before training. Its output is not private, and it says so."""

import dataclasses
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fedfdp.data.files.describe import Description
    from fedfdp.data.validation import Review

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
        found, show = dataclasses.asdict(description), partial(_show_description, description)
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
        advice=config.algorithm.advice(federation.classes),
        columns=columns,
        names=class_names(config.data),
    )


def _show_review(found: "Review") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    shape = "×".join(map(str, found.shape)) or "1"
    kind = f"{len(found.classes)} classes" if found.classes else "regression"
    sizes = f"{found.records:,} records of shape {shape}, {len(found.holders):,} holders, {kind}"
    console.print(f"{found.name}: {sizes}", style="bold", highlight=False, soft_wrap=True)
    few = found.classes if len(found.classes) <= 10 else ()
    holders = Table("holder", "train", "test", *few, box=None, pad_edge=False)
    for column in holders.columns[1:]:
        column.justify = "right"
    for holder in found.holders:
        counts = [f"{count:,}" for count in holder.classes or ()] if few else []
        holders.add_row(holder.name, f"{holder.train:,}", f"{holder.test:,}", *counts)
    console.print(holders)
    if found.columns:
        columns = Table("column", "public fact", "missing", "outside", box=None, pad_edge=False)
        for entry in found.columns:
            columns.add_row(entry.name, entry.kind, f"{entry.missing:,}", f"{entry.outside:,}")
        console.print(columns)
    console.print(f"repeated records: {found.repeated:,}", highlight=False)
    for line in found.advice or ("no problem found",):
        print(f"- {line}")


def _show_description(found: "Description") -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(f"{found.path}: {found.records:,} records", style="bold", highlight=False, soft_wrap=True)
    table = Table("name", "type", "missing", "different values", box=None, pad_edge=False)
    for entry in found.found:
        many = "" if entry.different is None else f"{entry.different}" if entry.different <= 12 else "more than 12"
        table.add_row(entry.name, entry.type, f"{entry.missing:,}", many)
    console.print(table)
    print("a start for run.toml; ranges and categories come from public knowledge, not from this file:\n")
    print(found.settings)
