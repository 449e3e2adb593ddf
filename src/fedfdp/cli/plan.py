"""fedfdp plan: solve for the one privacy setting that is left out, and show what it trades against what."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from fedfdp.privacy.planning.planner import Plan

BARS = "▁▂▃▄▅▆▇█"


def plan(
    source: Annotated[
        str | None, typer.Argument(help="A run's .toml file or a preset: show what is chosen for it, and why.")
    ] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="With a file: section.setting=value.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget ε.")] = None,
    delta: Annotated[float | None, typer.Option(help="δ; 1e-5 unless it is solved for.")] = None,
    q: Annotated[float | None, typer.Option(help="Sampling rate of a batch.")] = None,
    sigma: Annotated[float | None, typer.Option(help="Noise multiplier of the gradient.")] = None,
    sigma_loss: Annotated[float | None, typer.Option(help="Noise multiplier of the loss, if it is released.")] = None,
    sigma_count: Annotated[float | None, typer.Option(help="Noise multiplier of a count, if one is released.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds.")] = None,
    local_steps: Annotated[int | None, typer.Option(help="Batches per round; 1 unless it is solved for.")] = None,
    accountant: Annotated[str, typer.Option(help="pld, rdp, paper (which proves nothing), or module:Class.")] = "pld",
    solve: Annotated[str | None, typer.Option(help="What to solve for, if not what is left out.")] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Also price the rounds that the paper prints.")] = False,
    png: Annotated[Path | None, typer.Option(help="Draw ε over the rounds into this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON, and nothing else.")] = False,
) -> None:
    """Show what a run's settings leave open and what is chosen for it; or solve for one privacy setting.

    For example: fedfdp plan run.toml, or fedfdp plan --epsilon 3.52 --q 0.05 --sigma 2 --sigma-loss 5
    """
    from typing import cast

    from fedfdp.core.errors import SettingError

    if source is not None:
        given = {"--epsilon": epsilon, "--q": q, "--sigma": sigma, "--rounds": rounds, "--solve": solve, "--png": png}
        for name, value in given.items():
            if value is not None:
                raise SettingError(
                    name, str(value), "not together with a file", "use --set, as --set privacy.epsilon=3"
                )
        from fedfdp.cli.plan_run import show_plan

        show_plan(source, set_ or [], as_json=as_json)
        return

    from fedfdp.privacy.planning import planner as planning

    unknown = cast("planning.Unknown | None", solve.replace("-", "_") if solve else None)
    solved = planning.plan(
        epsilon=epsilon,
        delta=1e-5 if delta is None and unknown != "delta" else delta,
        q=q,
        sigma=sigma,
        sigma_loss=sigma_loss,
        sigma_count=sigma_count,
        rounds=rounds,
        local_steps=1 if local_steps is None and unknown != "local_steps" else local_steps,
        accountant=accountant,
        solve=unknown,
    )
    if png is not None:
        from fedfdp.cli.plan_figure import draw

        draw(solved, png)
    if as_json:
        _print_json(solved, compare)
        return
    from rich.console import Console

    console = Console(highlight=False)
    _print_plan(console, solved)
    _print_opinions(console, solved)
    _print_trade_off(console, solved)
    if compare:
        _print_paper(console)


def _print_json(solved: "Plan", compare: bool) -> None:
    import json
    from dataclasses import asdict

    content: dict[str, object] = {**asdict(solved), "sigma_effective": solved.sigma_effective}
    if compare:
        from fedfdp.privacy.planning.compare import opinions, paper_costs

        content["accountants"] = [asdict(opinion) for opinion in opinions(solved)]
        content["paper"] = [asdict(cost) for cost in paper_costs()]
    print(json.dumps(content))


def _print_plan(console: "Console", solved: "Plan") -> None:
    from rich.table import Table

    from fedfdp.privacy.accounting import find

    values = {
        "epsilon": f"{solved.epsilon:.4f}" + (f" of {solved.budget:g}" if solved.budget is not None else ""),
        "delta": f"{solved.delta:g}",
        "q": f"{solved.q:g}",
        "sigma": f"{solved.sigma:g}",
        "sigma_loss": "not released" if solved.sigma_loss is None else f"{solved.sigma_loss:g}",
        "rounds": f"{solved.rounds}",
        "local_steps": f"{solved.local_steps}",
    }
    if solved.sigma_count is not None:
        values["sigma_count"] = f"{solved.sigma_count:g}"
    table = Table(show_header=False, box=None)
    for name, value in values.items():
        mark = "solved" if name == solved.solved_for else ""
        table.add_row(name, f"[bold]{value}[/]" if mark else value, mark)
    table.add_row("effective sigma", f"{solved.sigma_effective:.4f}", "of all that one batch releases together")
    if solved.epsilon_replace_one is not None:
        table.add_row("epsilon, replace-one", f"{solved.epsilon_replace_one:.4f}", "if neighbours exchange a record")
    console.print(table)
    if unsound := find(solved.accountant).unsound:
        console.print(f"[bold]Not a guarantee:[/] {solved.accountant} {unsound}; use pld or rdp.")


def _print_opinions(console: "Console", solved: "Plan") -> None:
    from rich.table import Table

    from fedfdp.privacy.accounting import caveat
    from fedfdp.privacy.planning.compare import opinions

    within = [] if solved.budget is None else [f"rounds within {solved.budget:g}"]
    table = Table("accountant", "ε", *within, "", title=f"What {solved.rounds} rounds cost, by accountant")
    for opinion in opinions(solved):
        rounds = [] if opinion.rounds is None else [str(opinion.rounds)]
        table.add_row(opinion.accountant, f"{opinion.epsilon:.3f}", *rounds, caveat(opinion.accountant))
    console.print(table)


def _print_trade_off(console: "Console", solved: "Plan") -> None:
    from rich.table import Table

    from fedfdp.privacy.planning.compare import curve, trade_off

    rounds, rows = trade_off(solved)
    table = Table("σ", *[f"{count} rounds" for count in rounds], title="ε for other σ and rounds")
    for sigma, costs in rows.items():
        cells = [f"[bold]{c:.3g}[/]" if solved.budget and c <= solved.budget else f"{c:.3g}" for c in costs]
        table.add_row(f"{sigma:g}", *cells)
    console.print(table)
    if solved.budget is not None:
        console.print(f"bold: within {solved.budget:g}")
    last = max(rounds[-1], 2)
    counts = sorted({max(1, last * step // 40) for step in range(1, 41)})
    costs = curve(solved, counts)
    console.print(f"ε at σ = {solved.sigma:g}, up to {costs[-1]:.3g} after {last} rounds:")
    console.print(sparkline(costs))


def sparkline(values: list[float]) -> str:
    top = max(values) or 1.0
    return "".join(BARS[min(len(BARS) - 1, int(value / top * len(BARS)))] for value in values)


def _print_paper(console: "Console") -> None:
    from rich.table import Table

    from fedfdp.privacy.planning.compare import PAPER_EPSILON, paper_costs

    table = Table(
        "σ",
        "printed rounds",
        "ε, model only (rdp)",
        "ε, all released (rdp)",
        "ε, all released (pld)",
        f"rounds within {PAPER_EPSILON:g} (pld)",
        title=f"What the paper's rounds for ε = {PAPER_EPSILON:g} cost (q = 0.05, σ_l = 5, δ = 1e-5)",
    )
    for cost in paper_costs():
        numbers = [f"{value:.3f}" for value in (cost.epsilon_model_only, cost.epsilon_rdp, cost.epsilon)]
        table.add_row(f"{cost.sigma:g}", str(cost.printed_rounds), *numbers, str(cost.rounds))
    console.print(table)
    console.print("The printed rounds are those of the model alone: the loss uploads were not paid for.")
