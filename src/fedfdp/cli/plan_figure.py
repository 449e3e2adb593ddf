"""The figure of fedfdp plan: ε over the rounds, by accountant and by σ."""

from dataclasses import replace
from pathlib import Path

from fedfdp.core.figures import save_figure
from fedfdp.privacy.accounting import find
from fedfdp.privacy.planning.compare import comparable, curve, spread, trade_off
from fedfdp.privacy.planning.planner import Plan

POINTS = 40


def draw(plan: Plan, path: Path) -> None:
    from matplotlib.figure import Figure

    last = spread(plan.rounds)[-1]
    rounds = sorted({max(1, round(last * step / POINTS)) for step in range(1, POINTS + 1)})
    figure = Figure(figsize=(10, 4), layout="constrained")
    by_accountant, by_sigma = figure.subplots(1, 2, sharey=True)
    for index, name in enumerate(comparable(plan)):
        costs = curve(replace(plan, accountant=name), rounds)
        if find(name).unsound:
            by_accountant.plot(rounds, costs, color="0.5", linestyle="--", label=f"{name} (not valid)")
        else:
            by_accountant.plot(rounds, costs, color=f"C{index}", label=name)
    by_accountant.set_title(f"By accountant, σ = {plan.sigma:g}")
    _, rows = trade_off(plan)
    for index, sigma in enumerate(rows):
        chosen = sigma == float(f"{plan.sigma:.4g}")
        label = f"σ = {sigma:g}" + (" (plan)" if chosen else "")
        costs = curve(replace(plan, sigma=sigma), rounds)
        by_sigma.plot(rounds, costs, color=f"C{index}", linewidth=2.5 if chosen else 1.2, label=label)
    by_sigma.set_title(f"By noise, {plan.accountant}")
    top = 3 * max(plan.epsilon, plan.budget or 0.0)
    for axes in (by_accountant, by_sigma):
        if plan.budget is not None:
            axes.axhline(plan.budget, color="0.3", linewidth=1, linestyle=":", label=f"budget {plan.budget:g}")
        axes.plot([plan.rounds], [plan.epsilon], "o", color="black", markersize=5, zorder=5)
        axes.set(xlabel="rounds", xlim=(0, last), ylim=(0, top))
        axes.grid(alpha=0.25)
    by_accountant.legend(frameon=False, loc="upper left", fontsize=8)
    by_sigma.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1), fontsize=8)
    by_accountant.set_ylabel(f"ε at δ = {plan.delta:g}")
    save_figure(figure, path, dpi=130, format="png", make_folder=True)
