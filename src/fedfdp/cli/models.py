"""fedfdp models: which models there are, and whether one, yours too, can be trained privately.

Looks at made-up records only; never trains, and with --json prints nothing but JSON on stdout.
"""

import json
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedfdp.models.inspection import Inspected

app = typer.Typer(help="Models: list them, check whether one can be private.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on stdout.")]
_RULES = {"fast": "yes, fast", "fallback": "yes, slower", "refused": "NO", "frozen": "frozen: no noise"}


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """The built-in models, and their parameters on 28×28×1 images and on 30 numeric features."""
    from fedfdp.models.inspection import listed

    rows = listed()
    if as_json:
        print(json.dumps([asdict(row) for row in rows]))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "28×28×1, 10 classes", "30 features, 2 classes", "what for", box=None, pad_edge=False)
    for column in table.columns[1:3]:
        column.justify = "right"
    for row in rows:
        sizes = ["–" if size is None else f"{size:,}" for size in (row.on_images, row.on_table)]
        table.add_row(row.name, *sizes, row.purpose)
    console = Console()
    console.print(table)
    console.print(
        "or your own: package.module:Class; see what privacy makes of it with fedfdp models check", soft_wrap=True
    )


@app.command()
def check(
    model: Annotated[str, typer.Argument(help="A built-in model's name, or package.module:Class.")],
    input_shape: Annotated[str, typer.Option(help="The shape of a record, such as 1,28,28 or 30.")] = "1,28,28",
    outputs: Annotated[
        int | None, typer.Option(help="Outputs per record; 10, or what your model returns.", show_default=False)
    ] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="argument=value, as often as needed.")] = None,
    trainable: Annotated[list[str] | None, typer.Option(help="Train these layers only, such as head.")] = None,
    tokens: Annotated[
        int | None, typer.Option(help="Records are token numbers below this.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Whether every layer can be private, what to replace and how, and what a private step costs.

    Exit code 1 where a layer cannot be private. For example: fedfdp models check linear --input-shape 30 --outputs 2
    """
    from fedfdp.bench.cost import step_cost
    from fedfdp.models.inspection import inspected

    shape = _shape(input_shape)
    made, values = _built(model, shape, outputs, set_ or [], trainable, tokens is not None)
    with _no_warnings():  # the table says it all
        found = inspected(made, input_shape=shape, outputs=values, tokens=tokens, measure=step_cost)
    if as_json:
        cost = {name: value if math.isfinite(value) else None for name, value in asdict(found.cost).items()}
        print(json.dumps({"model": model, "possible": found.possible, **asdict(found), "cost": cost}))
    else:
        _print(model, found)
    if not found.possible:
        raise SystemExit(1)


@contextmanager
def _no_warnings() -> Iterator[None]:
    """For this command only: its caller may live on, and its other warnings with it."""
    log = logging.getLogger("fedfdp")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def _shape(text: str) -> tuple[int, ...]:
    from fedfdp.core.errors import SettingError

    try:
        shape = tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        shape = ()
    if not shape or min(shape) < 1:
        raise SettingError("--input-shape", text, "whole numbers with commas between them", "for example 1,28,28 or 30")
    return shape


def _built(
    name: str,
    shape: tuple[int, ...],
    outputs: int | None,
    arguments: list[str],
    trainable: list[str] | None,
    tokens: bool,
) -> "tuple[nn.Module, int]":
    """The model, and its number of outputs per record."""
    from fedfdp import models
    from fedfdp.core.errors import SettingError
    from fedfdp.core.trees import Leaf
    from fedfdp.models.outputs import unwrapped
    from fedfdp.models.tasks import task_for
    from fedfdp.runs.layers import override

    if outputs is not None and outputs < 1:
        raise SettingError("--outputs", outputs, "1 or more", "10 is usual")
    wanted = outputs or 10
    made = models.build(
        name, input_shape=shape, outputs=wanted, seed=0, arguments=override({}, arguments), trainable=trainable or None
    )
    form = (Leaf("", shape, "int64" if tokens else "float32"),)
    given, entry = models.first_output(made, form)
    if outputs is None and ":" in name:
        wanted = max(1, math.prod(given[1:]))
    else:
        models.check_output(made, form, outputs=wanted, task=task_for(wanted if wanted > 1 else None))
    if entry is not None or len(given) != 2:  # a step is measured with one row of numbers per record

        def row(_module: object, _inputs: object, found: object) -> "Tensor":
            counting = unwrapped(found, entry)
            return counting.reshape(len(counting), -1)

        made.register_forward_hook(row)
    return made, wanted


def _print(name: str, found: "Inspected") -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("layer", "kind", "private?", "what to do", box=None, pad_edge=False)
    for layer in found.layers:
        table.add_row(layer.name or "(itself)", layer.kind, _RULES[layer.rule], layer.advice)
    console = Console()
    say = partial(console.print, highlight=False, soft_wrap=True)
    console.print(table, highlight=False)
    frozen = f"; {found.frozen:,} frozen, which get no noise and are not sent" if found.frozen else ""
    say(f"trained: {found.trained:,} parameters, as many numbers are noised and sent{frozen}")
    cost, changed = found.cost, "" if found.possible else ", with the layers above replaced"
    private, plain = 1000 * cost.private_seconds, 1000 * cost.plain_seconds
    say(
        f"a private step on {cost.batch} records: {private:.2f} ms, {cost.ratio:.2f} × a plain one ({plain:.2f} ms)"
        f"{changed}; measured here and now"
    )
    verdict = "can be trained privately" if found.possible else "cannot be private as it is: replace what is marked NO"
    say(f"{name} {verdict}", style="bold")
