"""fedfdp report: runs as one page to read, show and keep, and as figures for a paper."""

from pathlib import Path
from typing import Annotated

import typer

Places = Annotated[list[Path], typer.Argument(help="Runs, or folders with runs below them.", metavar="RUN|SWEEP...")]


def report(
    places: Places,
    out: Annotated[Path | None, typer.Option(help="The page; none: report.html in the one folder given.")] = None,
    figures: Annotated[Path | None, typer.Option(help="Draw the figures into this folder too, as PDF and PNG.")] = None,
) -> None:
    """Write one HTML page about runs: results, privacy, fairness, clients. It needs no network."""
    from fedfdp.report.contents import document
    from fedfdp.report.page import PAGE, write_page
    from fedfdp.runs.store import find_runs

    facts = document(find_runs(places))
    file = out or (places[0] if len(places) == 1 else Path()) / PAGE
    write_page(facts, file)
    print(f"report of {len(facts['runs'])} {'run' if len(facts['runs']) == 1 else 'runs'}: {file}")
    if figures is not None:
        from fedfdp.report.figures import draw_figures

        drawn = draw_figures(facts, figures)
        print(f"figures: {', '.join(str(path) for path in drawn)}")
