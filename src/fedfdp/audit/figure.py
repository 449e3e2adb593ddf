"""What an audit saw, drawn: both worlds as histograms, and where the guess was made. Never decides anything."""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedfdp.audit.release import ReleaseFinding
from fedfdp.audit.separation import Numbers, Separation
from fedfdp.audit.training import TrainingFinding
from fedfdp.core.figures import save_figure

_COLOURS = ("tab:orange", "tab:blue")


def draw_release(finding: ReleaseFinding, path: Path) -> None:
    figure = Figure(figsize=(8, 7), layout="constrained")
    panels = figure.subplots(2, 1)
    shown = ((finding.pure, finding.epsilon_lower, "assuming nothing"),
             (finding.gaussian, finding.epsilon_lower_gaussian, "by a Gaussian's trade-off curve"))  # fmt: skip
    for axes, (separation, epsilon, how) in zip(panels, shown, strict=True):
        name = separation.guess.statistic
        _histograms(axes, finding.inside[name], finding.outside[name], "trials")
        _mark(axes, separation)
        axes.set(title=f"{how}: ε ≥ {epsilon:.3g}", xlabel=f"{name}, along the canary")
        axes.legend()
    figure.suptitle(_title(finding.epsilon_claimed, finding.delta, finding.confidence))
    save_figure(figure, path)


def draw_training(finding: TrainingFinding, path: Path) -> None:
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    scores, half = np.sort(finding.scores), finding.guesses // 2
    _histograms(axes, finding.scores[finding.inside], finding.scores[~finding.inside], "canaries")
    for cut, label in ((scores[-half], "guessed in"), (scores[half - 1], "guessed out")):
        axes.axvline(cut, color="black", linestyle="--" if label == "guessed in" else ":", label=f"{label} from here")
    axes.set(
        title=f"{finding.correct} of {finding.guesses} guesses right: ε ≥ {finding.epsilon_lower:.3g}",
        xlabel="how far the updates moved the canary's weight",
    )
    axes.legend()
    figure.suptitle(_title(finding.epsilon_claimed, finding.delta, finding.confidence))
    save_figure(figure, path)


def _title(claimed: float, delta: float, confidence: float) -> str:
    return f"ε claimed: {claimed:.3g} at δ = {delta:g}; lower bounds at {confidence:.4g} confidence"


def _histograms(axes: Axes, inside: Numbers, outside: Numbers, what: str) -> None:
    low, high = np.quantile(np.concatenate([inside, outside]), [0.0, 1.0])
    bins = np.linspace(low, high if high > low else low + 1, 81).tolist()
    for scores, label, colour in zip((inside, outside), ("with the canary", "without"), _COLOURS, strict=True):
        axes.hist(scores, bins=bins, histtype="stepfilled", alpha=0.35, color=colour)
        axes.hist(scores, bins=bins, histtype="step", color=colour, label=label)
    axes.set(yscale="log", ylabel=what)


def _mark(axes: Axes, separation: Separation) -> None:
    guess = separation.guess
    axes.axvline(
        guess.threshold,
        color="black",
        linestyle="--",
        label=f"guessed {'without' if guess.absent else 'with'} beyond this",
    )
    low, high = axes.get_xlim()
    axes.axvspan(guess.threshold, high if guess.side > 0 else low, color="black", alpha=0.07, lw=0)
    axes.set_xlim(low, high)
