"""fedfdp officer: what was spent on whose records, over all runs and nodes, on a page for a data protection officer."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fedfdp.runs.register import Records


def officer(
    places: Annotated[
        list[Path],
        typer.Argument(help="Runs, folders with runs below them, nodes' .toml files.", metavar="RUN|STORE|NODE..."),
    ],
    out: Annotated[Path | None, typer.Option(help="The page; none: officer.html in the one folder given.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the register as JSON, and write no page.")] = False,
) -> None:
    """Write the data protection officer's page: the total ε over all runs on these records, in plain words."""
    from fedfdp.report.officer import PAGE, write_officers_page
    from fedfdp.runs.register import register

    found = register(places)
    if as_json:
        print(json.dumps([_plain(records) for records in found]))
        return
    file = out or (places[0] if len(places) == 1 and places[0].is_dir() else Path()) / PAGE
    write_officers_page(found, file)
    for records in found:
        for total in records.totals[:1]:
            said = f"at most ε = {total.epsilon:.4f} at δ = {total.delta:g} for every {records.unit.one}"
            print(f"{records.name}: {said}, over {len(records.entries)} {'entry' if total.runs == 1 else 'entries'}")
        if records.unprotected:
            print(f"{records.name}: {len(records.unprotected)} without privacy, which no ε covers")
        if records.unnoised:
            said = "; ".join(f"{holder}: {words}" for holder, words in records.unnoised.items())
            print(f"{records.name}: rounds were answered without noise, which no ε covers: {said}")
    print(f"page for the data protection officer: {file}")


def _plain(records: "Records") -> dict[str, object]:
    from dataclasses import asdict

    return {
        "records": records.name,
        "unit": records.unit.one,
        "totals": [asdict(total) for total in records.totals],
        "without_privacy": [str(entry.place) for entry in records.unprotected],
        "without_noise": records.unnoised,
        "entries": [
            {"place": str(e.place), "kind": e.kind, "date": e.date, "method": e.method, "state": e.state,
             "epsilon": e.epsilon, "delta": e.delta, "holders": len(e.holders)}
            for e in records.entries
        ],
    }  # fmt: skip
