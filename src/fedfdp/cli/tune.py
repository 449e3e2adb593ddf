"""`fedfdp tune`: tries settings, stops the bad ones early, prints the Pareto front and the command to run.

It says what tuning costs in privacy. With --json it prints nothing but JSON on stdout.
"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from fedfdp.tuning.grid import Candidate
    from fedfdp.tuning.halving import RungReport, Tuned


def tune(
    source: Annotated[str, typer.Argument(help="A preset or a .toml file.")] = "default",
    set_: Annotated[list[str] | None, typer.Option("--set", help="section.setting=value, as often as needed.")] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option("--grid", help="section.setting=v1,v2,… to try; may be repeated. Default: λ, κ, λ_s, η and C."),
    ] = None,
    public: Annotated[
        str | None, typer.Option(help="Tune on this public data set; the private one is not read.")
    ] = None,
    points: Annotated[
        float, typer.Option(min=0, help="Percent of accuracy that may be given up for a lower Ψ when choosing.")
    ] = 0.5,
    eta: Annotated[int, typer.Option(min=2, help="At each rung, one in so many settings goes on.")] = 3,
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs at once; one per core if left out.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of runs, to continue in. Default: runs/tune.")] = None,
    png: Annotated[Path | None, typer.Option(help="The picture. Default: front.png in that folder.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on stdout.")] = False,
) -> None:
    """Find settings by measuring them: the front of accuracy, Ψ and the worst client."""
    from fedfdp.core.errors import SettingError
    from fedfdp.tuning.grid import candidates, parse_grid
    from fedfdp.tuning.halving import tune as halve
    from fedfdp.tuning.pareto import chosen
    from fedfdp.tuning.plot import plot_tuned

    root = out or Path("runs") / "tune"
    picture = png or root / "front.png"
    if picture.suffix.lower() != ".png":
        raise SettingError("--png", str(picture), "must be a file name that ends in .png")
    tried = candidates(source, set_ or [], parse_grid(grid) if grid else None, public=public)
    price = _price(tried, public)
    print(price, file=sys.stderr)
    tuned = halve(tried, root, eta=eta, jobs=jobs, on_report=_Reporter(tried))
    best = chosen({i: tuned.outcomes[i] for i in tuned.finished}, points=points)
    picture.parent.mkdir(parents=True, exist_ok=True)
    plot_tuned(tried, tuned, best, picture)
    command = " ".join(["fedfdp run", source, *(f"--set {item}" for item in [*(set_ or []), *tried[best].overrides])])
    if as_json:
        print(json.dumps(_answer(tried, tuned, best, command, price, public, picture), ensure_ascii=False))
        return
    _show(tried, tuned, best)
    print(f"{price}\nchosen: the least Ψ within {points:g} points of the best accuracy. Run it:\n  {command}")
    print(f"picture: {picture}")


def _price(tried: list["Candidate"], public: str | None) -> str:
    """What tuning costs, in words."""
    config = tried[0].config
    if public is not None:
        return f"{len(tried)} settings tried on {public}, which is taken to be public: that costs no privacy."
    if config.privacy is None:
        return f"{len(tried)} settings tried on {config.data.source}, without privacy."
    return (
        f"Tuning on private data costs privacy: {len(tried)} settings are tried on {config.data.source}, each run "
        "spends an ε of its own, and they are compared by exact results. No ε printed by a run covers that. "
        "Tune on public data (--public) to keep the ε of the final run true."
    )


class _Reporter:
    """Prints a line on stderr whenever a run reaches a rung."""

    def __init__(self, tried: list["Candidate"]) -> None:
        self.tried = tried

    def __call__(self, report: "RungReport") -> None:
        one = report.outcome
        came = "failed" if one is None else f"accuracy {one.accuracy:.2%}  Ψ {one.psi:.2e}  worst {one.worst:.1%}"
        rounds = "" if one is None else f" after {one.round} rounds"
        place = f"rung {report.rung}/{report.of}, {report.done} of {report.asked}"
        print(f"{place}: {self.tried[report.candidate].label}{rounds}: {came}", file=sys.stderr, flush=True)


def _answer(
    tried: list["Candidate"], tuned: "Tuned", best: int, command: str, price: str, public: str | None, picture: Path
) -> dict[str, object]:
    from fedfdp.tuning.pareto import front

    edge = front({i: tuned.outcomes[i] for i in tuned.finished})

    def entry(i: int) -> dict[str, object]:
        one = tuned.outcomes[i]
        return {
            "settings": list(tried[i].overrides),
            "rounds": one.round,
            "accuracy": one.accuracy,
            "psi": one.psi if one.psi < float("inf") else None,
            "worst_accuracy": one.worst,
            "finished": i in tuned.finished,
        }

    return {
        "chosen": entry(best),
        "command": command,
        "front": [entry(i) for i in edge],
        "tried": [entry(i) for i in sorted(tuned.outcomes)],
        "failed": {tried[i].label: message for i, message in tuned.failed.items()},
        "public": public,
        "privacy": price,
        "png": str(picture),
    }


def _show(tried: list["Candidate"], tuned: "Tuned", best: int) -> None:
    from rich.console import Console
    from rich.table import Table

    from fedfdp.fairness.metrics import number
    from fedfdp.tuning.pareto import front

    edge = front({i: tuned.outcomes[i] for i in tuned.finished})
    table = Table("", "settings", "accuracy", "Ψ", "worst client", "rounds", title="Pareto front", title_justify="left")
    for place, i in enumerate(edge, start=1):
        one = tuned.outcomes[i]
        mark = f"{place} chosen" if i == best else str(place)
        table.add_row(mark, tried[i].label, f"{one.accuracy:.2%}", number(one.psi), f"{one.worst:.2%}", str(one.round))
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)
    early = len(tuned.outcomes) - len(tuned.finished)
    console.print(f"{len(tuned.finished)} run to the end, {early} stopped early, {len(tuned.failed)} failed")
    for i, message in tuned.failed.items():
        console.print(f"failed: {tried[i].label}: {message}", markup=False, soft_wrap=True)
