"""`fedfdp lambda`: λ* from given constants, the regime in words, the coefficients, and a plot of P(λ).

Never prints a root of G outside the domain, nor anything but JSON on stdout with --json.
"""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedfdp.errors import SettingError

if TYPE_CHECKING:
    from fedfdp.theory import Coefficients, Constants, Optimum


def lambda_star(
    L: Annotated[float, typer.Option("--L", help="Smoothness of every client's loss.")],
    mu: Annotated[float, typer.Option("--mu", help="μ, strong convexity of every client's loss.")],
    G: Annotated[float, typer.Option("--G", help="Bound on the norm of every record's gradient.")],
    gamma_het: Annotated[float, typer.Option("--Gamma", help="Γ = F* − Σ p_i F_i*: how different the clients are.")],
    q0: Annotated[float, typer.Option("--q0", help="Least gap of a record's loss to F(w_t); below 0 in any real run.")],
    q1: Annotated[float, typer.Option("--q1", help="Largest gap of a record's loss to F(w_t).")],
    sigma: Annotated[float, typer.Option("--sigma", help="Noise multiplier of the gradient.")],
    clip: Annotated[float, typer.Option("--clip", help="C, the bound gradients are clipped to.")],
    dim: Annotated[int, typer.Option("--dim", help="Number of weights.")],
    b_hat: Annotated[float, typer.Option("--b-hat", help="Batch size of the smallest client.")],
    distance: Annotated[float, typer.Option("--distance", help="E‖w_1 − w*‖².")],
    rounds: Annotated[int, typer.Option("--rounds", help="T.")],
    png: Annotated[Path | None, typer.Option("--png", help="Draw P(λ) into this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """The λ that makes the convergence bound least, and whether the bound has anything to say."""
    from fedfdp.theory import Constants, derived_optimum

    constants = Constants(
        L=L,
        mu=mu,
        G=G,
        gamma_het=gamma_het,
        q0=q0,
        q1=q1,
        sigma=sigma,
        clip=clip,
        dim=dim,
        b_hat=b_hat,
        distance=distance,
        rounds=rounds,
    )
    optimum = derived_optimum(constants)
    drawn = png is not None and _draw(constants, png)
    answer = _answer(constants, optimum, png if drawn else None)
    if as_json:
        typer.echo(json.dumps(answer, ensure_ascii=False, indent=2, allow_nan=False))
        return
    _show(optimum, answer)
    if png is not None:
        typer.echo(f"plot: {png}" if drawn else "plot: none, the bound is void and there is nothing to draw")


def _draw(constants: "Constants", png: Path) -> bool:
    from fedfdp.theory.plot import plot_bound

    if png.suffix.lower() != ".png":
        raise SettingError("png", str(png), "must be a file name that ends in .png")
    if not png.parent.is_dir():
        raise SettingError("png", str(png), "must be in a folder that exists", f"create {png.parent} first")
    return plot_bound(constants, png)


def _answer(constants: "Constants", optimum: "Optimum", png: Path | None) -> dict[str, Any]:
    """What --json prints. JSON has no infinity: an endless domain has null for its end."""
    from fedfdp.theory import (
        derived_coefficients,
        derived_P,
        printed_coefficients,
        printed_optimum,
        theorem_coefficients,
    )

    best = optimum.lambda_star
    lower, upper = optimum.domain
    return {
        "lambda_star": best,
        "regime": optimum.regime,
        "reason": optimum.reason,
        "domain": [lower, _finite(upper)],
        "bound": None if best is None else _finite(derived_P(constants, best)),
        # Where the bound is void the printed λ* lies in no domain either.
        "printed_lambda_star": None if best is None else printed_optimum(constants).lambda_star,
        "coefficients": {
            "printed": _named(printed_coefficients(constants)),
            "theorem": _named(theorem_coefficients(constants)),
            "derived": _named(derived_coefficients(constants)),
        },
        "png": None if png is None else str(png),
    }


def _named(coefficients: "Coefficients") -> dict[str, float | None]:
    """a1 … a5 and, where G is a cubic that floating point can hold, a6 and a7."""
    from dataclasses import asdict

    from fedfdp.theory import depressed

    try:
        form = depressed(coefficients)
        a6, a7 = _finite(form.a6), _finite(form.a7)
    except (OverflowError, ZeroDivisionError):
        a6 = a7 = None
    return asdict(coefficients) | {"a6": a6, "a7": a7}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _show(optimum: "Optimum", answer: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    lower, upper = optimum.domain
    best = optimum.lambda_star
    console = Console(soft_wrap=True, highlight=False)
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
    table = Table("coefficient", "printed", "Theorem 2 as printed", "derived")
    columns = answer["coefficients"]
    for name in columns["printed"]:
        values = (columns[source][name] for source in ("printed", "theorem", "derived"))
        table.add_row(name, *("none" if value is None else f"{value:.6g}" for value in values))
    console.print(table)
