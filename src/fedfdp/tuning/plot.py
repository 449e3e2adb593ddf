"""What tuning found, as a picture: accuracy and the worst client against Ψ. Draws outcomes, computes none."""

from collections.abc import Sequence
from pathlib import Path

from fedfdp.core.figures import save_figure
from fedfdp.tuning.grid import Candidate
from fedfdp.tuning.halving import Tuned
from fedfdp.tuning.pareto import front


def plot_tuned(candidates: Sequence[Candidate], tuned: Tuned, best: int, path: Path) -> None:
    """The front numbered in the order of the table, the choice ringed, what was stopped early in grey."""
    from matplotlib.figure import Figure

    finished = {i: tuned.outcomes[i] for i in tuned.finished}
    edge = front(finished)
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    panels = figure.subplots(1, 2, sharex=True)
    for axes, name in zip(panels, ("accuracy", "worst"), strict=True):
        groups = {
            "stopped early": ([i for i in tuned.outcomes if i not in finished], "tab:gray", 14, 0.5),
            "run to the end": ([i for i in finished if i not in edge], "tab:blue", 28, 0.9),
            "Pareto front": (edge, "tab:orange", 42, 1.0),
        }
        for label, (members, colour, area, alpha) in groups.items():
            points = [tuned.outcomes[i] for i in members if 0 < tuned.outcomes[i].psi < float("inf")]
            heights = [100 * getattr(one, name) for one in points]
            axes.scatter([one.psi for one in points], heights, s=area, c=colour, alpha=alpha, label=label, lw=0)
        for number, i in enumerate(edge, start=1):
            place = (tuned.outcomes[i].psi, 100 * getattr(tuned.outcomes[i], name))
            axes.annotate(str(number), place, xytext=(5, 4), textcoords="offset points", fontsize=8)
        axes.scatter(
            [tuned.outcomes[best].psi],
            [100 * getattr(tuned.outcomes[best], name)],
            s=150,
            facecolors="none",
            edgecolors="black",
            label="chosen",
        )
        axes.set_xscale("log")
        axes.set_xlabel("Ψ: variance of the clients' losses (left is more equal)")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_title("test accuracy, %", loc="left", fontsize=10)
    panels[1].set_title("accuracy of the worst client, %", loc="left", fontsize=10)
    panels[1].legend(fontsize=8, frameon=False)
    figure.suptitle(f"chosen: {candidates[best].label}", fontsize=10)
    save_figure(figure, path)
