"""Figures of runs, drawn with matplotlib. They show what the run folders hold and compute nothing of their own."""

from pathlib import Path

from fedfdp.errors import RunError
from fedfdp.runs.folder import RunFolder


def draw_runs(runs: list[RunFolder], file: Path) -> None:
    """Accuracy, Ψ and ε over the rounds, and how well each client is served, for one run or several."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    histories = {_label(run): run.metrics() for run in runs}
    figure, axes = plt.subplots(1, 4 if _private(histories) else 3, figsize=(14, 3.4), layout="constrained")
    for label, history in histories.items():
        rounds = [entry["round"] for entry in history]
        axes[0].plot(rounds, [100 * e["accuracy"] for e in history], label=label, marker=".", markersize=4)
        axes[1].plot(rounds, [e["psi"] for e in history], label=label, marker=".", markersize=4)
        clients = sorted(100 * a for a in history[-1]["clients"]["accuracy"] if a is not None)
        axes[2].plot(range(1, len(clients) + 1), clients, marker="o", markersize=4, label=label)
        if len(axes) == 4 and history[-1]["epsilon"] is not None:
            axes[3].plot(rounds, [e["epsilon"] for e in history], label=label)
    titles = [
        "test accuracy, %",
        "Ψ: variance of the clients' losses",
        "accuracy by client, %",
        "ε spent by each client",
    ]
    below = ["round", "round", "client, worst first", "round"]
    for axis, title, label in zip(axes, titles, below, strict=False):
        axis.set_title(title, fontsize=10, loc="left")
        axis.set_xlabel(label, fontsize=9)
        axis.tick_params(labelsize=8)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    axes[1].set_yscale("log")
    axes[2].set_ylim(bottom=max(0, axes[2].get_ylim()[0] - 5), top=100)
    if len(axes) == 4:
        axes[3].set_ylim(bottom=0)
    if len(runs) > 1:
        axes[0].legend(fontsize=8, frameon=False)
    try:
        figure.savefig(file, dpi=150)
    except (OSError, ValueError) as error:
        raise RunError(f"{file} cannot be written: {error}; give a .png, .svg or .pdf file") from None
    finally:
        plt.close(figure)


def _label(run: RunFolder) -> str:
    return run.path.name


def _private(histories: dict[str, list[dict[str, object]]]) -> bool:
    return any(history and history[-1]["epsilon"] is not None for history in histories.values())
