"""fedfdp init: a run.toml for your own table, complete and ready to run. It asks for what only you can say."""

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fedfdp.data.files.describe import Description
    from fedfdp.data.scaffold import Choices

Table = Annotated[Path, typer.Argument(help="Your table: .csv, .csv.gz, .tsv, .parquet …", show_default=False)]


def init(
    table: Table,
    holder: Annotated[
        str | None, typer.Option(help="The column that says who holds a row; none: dealt out at random.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="The column to predict, if it holds classes.")] = None,
    target: Annotated[str | None, typer.Option(help="The column to predict, if it holds a quantity.")] = None,
    unit: Annotated[
        str | None, typer.Option(help="The column that says whose row it is, if a person has several; none: no such.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="The privacy budget of a run.", show_default=False)] = None,
    ranges: Annotated[
        str, typer.Option(help="read: from this file, for you to replace. private: estimated under epsilon.")
    ] = "read",
    decimal: Annotated[str | None, typer.Option(help="The mark before decimals, if the file does not show it.")] = None,
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("run.toml"),
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
) -> None:
    """Write a run.toml for your table. Asks for holder, label, unit and epsilon, or takes them as options.

    For example: fedfdp init patients.csv --holder hospital --label readmitted --epsilon 3
    """
    from fedfdp.core.errors import SettingError
    from fedfdp.data.files.describe import describe
    from fedfdp.data.scaffold import Choices, scaffold

    if out.exists() and not force:
        raise SettingError("--out", str(out), "is there already", "give another file, or --force to replace it")
    if label is not None and target is not None:
        raise SettingError("--target", target, "given beside --label", "one of them: classes or a quantity")
    if ranges not in ("read", "private"):
        raise SettingError("--ranges", ranges, "read or private")
    if decimal not in (None, ".", ","):
        raise SettingError("--decimal", decimal, '"." or ","')
    found = describe(table, decimal)
    if not found.columns:
        raise SettingError("table", str(table), "not a table", f"see what is in it: fedfdp data check {table}")
    choices = _asked(found, holder, label or target, unit, epsilon)
    regression = True if target is not None else False if label is not None else None
    choices = Choices(
        choices.holder,
        choices.label,
        regression,
        choices.unit,
        choices.epsilon,
        "private" if ranges == "private" else "read",
        decimal,
    )
    source = os.path.relpath(table.resolve(), out.resolve().parent)
    text = scaffold(found, Path(source).as_posix(), _name(table), choices)
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SettingError("--out", str(out), f"cannot be written: {error.strerror}") from None
    print(f"{out} is written. Its ranges and categories were read from {table.name}: replace them by public ones.")
    print(f"check it: fedfdp data check {out}\ntrain:    fedfdp run {out}")


def _asked(
    found: "Description", holder: str | None, label: str | None, unit: str | None, epsilon: float | None
) -> "Choices":
    """The choices that were given, and answers to questions for the others."""
    from fedfdp.core.errors import SettingError
    from fedfdp.data.scaffold import DEALT, Choices, guessed

    names, likely = ", ".join(column.name for column in found.columns), guessed(found.columns)
    if sys.stdin is None or not sys.stdin.isatty():
        for option, given in ("--holder", holder), ("--label", label):
            if given is None:
                fix = f"give {option}; its columns: {names}"
                if option == "--holder":
                    fix += f"; --holder {DEALT} deals rows out at random"
                raise SettingError(option, None, f"which column of {Path(found.path).name}?", fix)
        return Choices(
            holder or "", label or "", None, None if unit == DEALT else unit, 3.0 if epsilon is None else epsilon
        )
    print(f"{found.path}: {found.records:,} rows; columns: {names}")
    holder = holder or typer.prompt(f"Which column says who holds a row? ({DEALT}: nobody)", default=likely.holder)
    label = label or typer.prompt("Which column is to be predicted?", default=likely.label)
    unit = unit or typer.prompt(f"Which column says whose row it is? ({DEALT}: each row is protected)", default=DEALT)
    epsilon = typer.prompt("Privacy budget epsilon", default=3.0, type=float) if epsilon is None else epsilon
    return Choices(holder, label, None, None if unit == DEALT else unit, epsilon)


def _name(table: Path) -> str:
    """A run's name from its table's."""
    return re.sub(r"[^\w-]+", "-", table.name.split(".")[0]).strip("-") or "run"
