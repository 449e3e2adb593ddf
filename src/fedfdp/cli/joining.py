"""fedfdp joining: whether a run's holders are better off than each by itself."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fedfdp.runs.joining import Joining


def joining(
    run: Annotated[Path, typer.Argument(help="A finished run's folder.")],
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="section.setting=value for the holders' own training.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on stdout.")] = False,
) -> None:
    """Does joining pay? Train every holder by itself at the same ε, and compare with the run's model."""
    from fedfdp.runs.joining import joining as compared

    found = compared(run, set_ or [])
    if as_json:
        print(json.dumps(found.to_dict()))
    else:
        _show(found)


def _show(found: "Joining") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for title in ("holder", "joined", "alone", "test records", ""):
        table.add_column(title, justify="left" if title in ("holder", "") else "right")
    for holder in found.holders:
        values = [_text(value, found.measure) for value in (holder.joined, holder.alone)]
        table.add_row(holder.name, *values, str(holder.records or "–"), holder.advice)
    Console().print(table)
    print(f"worse off than alone: {len(found.worse_off)} of {len(found.holders)}")
    print(found.recommendation)
    if found.epsilon is not None:
        print(f"each at ε = {found.epsilon:g}; where records are real, both are paid for")


def _text(value: float | None, measure: str) -> str:
    return "–" if value is None else f"{value:.2%}" if measure == "accuracy" else f"{value:.4f}"
