"""P(λ) drawn over its domain, with λ* marked. Draws only what the bound says: nothing past the domain's end."""

import math
from pathlib import Path

from fedfdp.core.figures import save_figure
from fedfdp.theory.bound import Constants, derived_P, theorem_coefficients
from fedfdp.theory.optimum import clipping_switch, derived_optimum, printed_optimum


def plot_bound(k: Constants, path: Path) -> bool:
    """Write the picture to `path`; False, and no file, where the bound is void and there is nothing to draw."""
    optimum, printed = derived_optimum(k), printed_optimum(k).lambda_star
    if optimum.lambda_star is None or printed is None:
        return False
    from matplotlib.figure import Figure

    domain_end = optimum.domain[1]
    end = domain_end if math.isfinite(domain_end) else _right_end(k, optimum.lambda_star, printed)
    grid = [end * i / 400 for i in range(400)]
    theorem = theorem_coefficients(k)

    figure = Figure(figsize=(7, 6), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    upper.plot(grid, [derived_P(k, lam) for lam in grid])
    upper.plot(optimum.lambda_star, derived_P(k, optimum.lambda_star), "ko", clip_on=False, zorder=3)
    upper.set_title(f"As derived: λ* = {optimum.lambda_star:.4g} ({optimum.regime})")
    lower.plot(grid, [theorem.P(lam) for lam in grid], color="tab:orange")
    lower.plot(printed, theorem.P(printed), "ko", clip_on=False, zorder=3)
    lower.set_title(f"Theorem 2 as printed, which knows no clipping: least at λ = {printed:.4g}")
    lower.set_xlabel("λ")
    switch = clipping_switch(k)
    if 0 < switch < end:
        upper.axvline(switch, color="grey", linestyle="--", label="1 + Q₀λ = C/G")
    for axes in (upper, lower):
        axes.set(ylabel="bound on E[F(w_T)] − F*", xlim=(0, 1.04 * end))
        axes.grid(alpha=0.3)
        if math.isfinite(domain_end):
            axes.set_yscale("log")  # the bound grows without end towards the end of its domain
            axes.axvline(domain_end, color="grey", linestyle=":", label=f"domain ends at λ = {domain_end:.4g}")
        if axes.get_legend_handles_labels()[0]:
            axes.legend()
    save_figure(figure, path)
    return True


def _right_end(k: Constants, best: float, printed: float) -> float:
    """Where an endless domain is cut off: past both minima, or where the ceiling of C_t has doubled."""
    return 2 * max(best, printed) or (1 / k.q1 if k.q1 > 0 else 1.0)
