"""`fedfdp lambda`: λ* from given constants or those of a run, its regime in words, the coefficients, a plot of P(λ).

It never prints a root of G that lies outside the domain. With --json it prints nothing but JSON on stdout.
"""

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import typer

from fedfdp.core.errors import SettingError
from fedfdp.core.figures import check_png

if TYPE_CHECKING:
    from rich.console import Console

    from fedfdp.theory.bound import Coefficients, Constants
    from fedfdp.theory.estimates import Estimate, Estimates
    from fedfdp.theory.optimum import Optimum

SYMBOLS = {"mu": "μ", "gamma_het": "Γ", "q0": "Q_0", "q1": "Q_1", "sigma": "σ", "clip": "C", "dim": "d"} | {
    "b_hat": "B̂",
    "distance": "‖w_1 − w*‖²",
    "rounds": "T",
}
OPTIONS = {"gamma_het": "Gamma", "b_hat": "b-hat"}  # options that are spelt differently from their constant


Columns = dict[str, dict[str, float | None]]  # printed, theorem, derived: each coefficient by its name


class Answer(TypedDict):
    """What --json prints. JSON has no infinity: a domain without end has null for its end."""

    lambda_star: float | None
    regime: str
    reason: str
    domain: list[float | None]
    bound: float | None
    printed_lambda_star: float | None
    coefficients: Columns | None
    estimates: dict[str, dict[str, object]] | None
    png: str | None


def lambda_star(
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Estimate the constants from this finished run; options below take precedence."),
    ] = None,
    L: Annotated[float | None, typer.Option("--L", help="Smoothness of every client's loss.")] = None,
    mu: Annotated[float | None, typer.Option("--mu", help="μ, strong convexity of every client's loss.")] = None,
    G: Annotated[float | None, typer.Option("--G", help="Bound on the norm of every record's gradient.")] = None,
    gamma_het: Annotated[
        float | None, typer.Option("--Gamma", help="Γ = F* − Σ p_i F_i*: how different the clients are.")
    ] = None,
    q0: Annotated[
        float | None, typer.Option("--q0", help="Least gap of a record's loss to F(w_t); below 0 in any real run.")
    ] = None,
    q1: Annotated[float | None, typer.Option("--q1", help="Largest gap of a record's loss to F(w_t).")] = None,
    sigma: Annotated[float | None, typer.Option("--sigma", help="Noise multiplier of the gradient.")] = None,
    clip: Annotated[float | None, typer.Option("--clip", help="C, the bound gradients are clipped to.")] = None,
    dim: Annotated[int | None, typer.Option("--dim", help="Number of weights.")] = None,
    b_hat: Annotated[float | None, typer.Option("--b-hat", help="Batch size of the smallest client.")] = None,
    distance: Annotated[float | None, typer.Option("--distance", help="E‖w_1 − w*‖².")] = None,
    rounds: Annotated[int | None, typer.Option("--rounds", help="T.")] = None,
    records: Annotated[int, typer.Option("--records", min=1, help="Records that --from estimates on.")] = 2048,
    png: Annotated[Path | None, typer.Option("--png", help="Draw P(λ) into this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """The λ that makes the convergence bound least, and whether the bound has anything to say."""
    given: dict[str, float | None] = {
        "L": L,
        "mu": mu,
        "G": G,
        "gamma_het": gamma_het,
        "q0": q0,
        "q1": q1,
        "sigma": sigma,
        "clip": clip,
        "dim": dim,
        "b_hat": b_hat,
        "distance": distance,
        "rounds": rounds,
    }
    check_png(png)
    constants, estimates, optimum = _found(source, given, records)
    drawn = png is not None and optimum.lambda_star is not None and constants is not None and _draw(constants, png)
    answer = _answer(constants, estimates, optimum, png if drawn else None)
    if as_json:
        typer.echo(json.dumps(answer, ensure_ascii=False, indent=2, allow_nan=False))
        return
    _show(optimum, answer, estimates)
    if png is not None:
        typer.echo(f"plot: {png}" if drawn else "plot: none, the bound is void and there is nothing to draw")


def _found(
    source: Path | None, options: dict[str, float | None], records: int
) -> tuple["Constants | None", "Estimates | None", "Optimum"]:
    """The constants, given or else estimated; None if there is no bound that they could go into."""
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if source is None:
        from fedfdp.theory.bound import Constants
        from fedfdp.theory.optimum import derived_optimum

        for name in options:
            if name not in given:
                option = OPTIONS.get(name, name)
                raise SettingError(option, None, "needed", f"give --{option}, or --from RUN to estimate it")
        constants = Constants(**given)
        return constants, None, derived_optimum(constants)
    from fedfdp.theory.of_run import estimates_of

    estimates = estimates_of(source, records=records, clip=options["clip"]).given(given)
    return estimates.constants(), estimates, estimates.optimum()


def _draw(constants: "Constants", png: Path) -> bool:
    from fedfdp.theory.plot import plot_bound

    return plot_bound(constants, png)


def _answer(
    constants: "Constants | None", estimates: "Estimates | None", optimum: "Optimum", png: Path | None
) -> Answer:
    from fedfdp.theory.bound import derived_coefficients, derived_P, printed_coefficients, theorem_coefficients
    from fedfdp.theory.optimum import printed_optimum

    best = optimum.lambda_star
    lower, upper = optimum.domain
    return {
        "lambda_star": best,
        "regime": optimum.regime,
        "reason": optimum.reason,
        "domain": [lower, _finite(upper)],
        "bound": None if best is None or constants is None else _finite(derived_P(constants, best)),
        # If the bound is void, the printed λ* lies in no domain either.
        "printed_lambda_star": None if best is None or constants is None else printed_optimum(constants).lambda_star,
        "coefficients": None
        if constants is None
        else {
            "printed": _named(printed_coefficients(constants)),
            "theorem": _named(theorem_coefficients(constants)),
            "derived": _named(derived_coefficients(constants)),
        },
        "estimates": None
        if estimates is None
        else {name: asdict(estimate) for name, estimate in estimates.items().items()},
        "png": None if png is None else str(png),
    }


def _named(coefficients: "Coefficients") -> dict[str, float | None]:
    """a1 … a5; also a6 and a7, if G is a cubic that floating point can hold."""
    from fedfdp.theory.cubic import depressed

    try:
        form = depressed(coefficients)
        a6, a7 = _finite(form.a6), _finite(form.a7)
    except (OverflowError, ZeroDivisionError):
        a6 = a7 = None
    return asdict(coefficients) | {"a6": a6, "a7": a7}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _show(optimum: "Optimum", answer: Answer, estimates: "Estimates | None") -> None:
    from rich.console import Console

    lower, upper = optimum.domain
    best = optimum.lambda_star
    console = Console(soft_wrap=True, highlight=False, width=None if sys.stdout.isatty() else 160)
    console.print(f"λ* = {'none' if best is None else format(best, '.6g')}", style="bold")
    console.print(f"regime: {optimum.regime}. {optimum.reason}", markup=False)
    console.print(
        f"domain: {'empty' if upper == 0 else f'{lower:g} ≤ λ < {upper:.6g}'.replace('inf', '∞')}", markup=False
    )
    if best is not None:
        console.print(
            f"bound at λ*: {answer['bound']:.6g}" if answer["bound"] is not None else "bound at λ*: overflows"
        )
        console.print(f"λ* of the printed coefficients, which know no clipping: {answer['printed_lambda_star']:.6g}")
    if estimates is not None:
        _show_estimates(console, estimates.items())
    if answer["coefficients"] is not None:
        _show_coefficients(console, answer["coefficients"])


def _show_estimates(console: "Console", estimates: "dict[str, Estimate]") -> None:
    from rich.table import Table

    table = Table("constant", "value", "reads private data", "how it was found")
    for name, estimate in estimates.items():
        reads = "yes" if estimate.private else "no"
        table.add_row(SYMBOLS.get(name, name), f"{estimate.value:.6g}", reads, estimate.how)
    console.print(table, soft_wrap=False)
    if any(estimate.private for estimate in estimates.values()):
        console.print("Estimates that read private data take raw records, without noise: for simulations only.")


def _show_coefficients(console: "Console", columns: Columns) -> None:
    from rich.table import Table

    table = Table("coefficient", "printed", "Theorem 2 as printed", "derived")
    for name in columns["printed"]:
        values = (columns[source][name] for source in ("printed", "theorem", "derived"))
        table.add_row(name, *("none" if value is None else f"{value:.6g}" for value in values))
    console.print(table)
