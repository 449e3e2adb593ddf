"""fedfdp audit: attack the mechanism, and compare what the attack shows with the ε that is claimed.

With --json prints nothing but JSON on stdout. Exit code 0: the claim stands; 1: it is exceeded.
"""

import json
import math
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedfdp.core.errors import SettingError, nearest
from fedfdp.core.figures import check_png

if TYPE_CHECKING:
    from fedfdp.audit import ReleaseFinding, TrainingFinding
    from fedfdp.audit.game import Game
    from fedfdp.privacy.noise.randomness import Randomness

_SHARED = {"sigma", "q", "clip", "sigma_loss", "delta"}
_SETTINGS = {"release": _SHARED | {"trials"}, "training": _SHARED | {"rounds", "canaries"}, "self-test": {"trials"}}


def audit(
    game: Annotated[str, typer.Option(help="release: many trials of one release; training: one run.")] = "release",
    trials: Annotated[int | None, typer.Option(help="release: trials with the canary, and as many without.")] = None,
    sigma: Annotated[float | None, typer.Option(help="Noise multiplier of the gradient.")] = None,
    q: Annotated[float | None, typer.Option(help="Sampling rate of a batch.")] = None,
    clip: Annotated[float | None, typer.Option(help="C, the bound gradients are clipped to.")] = None,
    sigma_loss: Annotated[float | None, typer.Option(help="Noise multiplier of the loss.")] = None,
    delta: Annotated[float | None, typer.Option(help="δ at which ε is claimed and shown.")] = None,
    rounds: Annotated[int | None, typer.Option(help="training: rounds of the run.")] = None,
    canaries: Annotated[int | None, typer.Option(help="training: canaries, each there by a coin flip.")] = None,
    confidence: Annotated[float, typer.Option(help="How sure the lower bounds are.")] = 0.999,
    seed: Annotated[int | None, typer.Option(help="To repeat an audit; none: the system's entropy.")] = None,
    png: Annotated[Path | None, typer.Option("--png", help="Draw what was seen into this file.")] = None,
    self_test: Annotated[bool, typer.Option("--self-test", help="Plant known faults: each must be found.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Attack the private mechanism and show the ε that it leaks at least, beside the ε that is claimed.

    For example: fedfdp audit --trials 20000 --sigma 1 --q 0.1
    """
    kind = "self-test" if self_test else game
    if kind not in _SETTINGS:
        raise SettingError("game", game, nearest(game, ("release", "training")))
    values = {"sigma": sigma, "q": q, "clip": clip, "sigma_loss": sigma_loss, "delta": delta}
    values |= {"trials": trials, "rounds": rounds, "canaries": canaries}
    given: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    for name in given.keys() - _SETTINGS[kind]:
        raise SettingError(name, given[name], f"not a setting of the {kind} audit", "leave it out")
    if self_test and png is not None:
        raise SettingError("png", str(png), "the self-test draws nothing", "leave it out")
    check_png(png)
    if self_test:
        failed = _self_test(given.get("trials", 20_000), confidence, seed, as_json)
    elif game == "release":
        failed = _release(given.pop("trials", 100_000), given, confidence, seed, png, as_json)
    else:
        failed = _training(given, confidence, seed, png, as_json)
    raise typer.Exit(1 if failed else 0)


def _release(
    trials: int, settings: dict[str, Any], confidence: float, seed: int | None, png: Path | None, as_json: bool
) -> bool:
    from fedfdp.audit import ReleaseGame, Trials
    from fedfdp.audit.figure import draw_release
    from fedfdp.audit.separation import check_confidence
    from fedfdp.cli.audit_progress import counting

    check_confidence(confidence)
    game = ReleaseGame(**settings)
    with counting("trials", trials) as count:
        worlds = game.play(Trials(trials, _randomness(seed), on_progress=count))
    finding = game.judge(*worlds, confidence=confidence)
    if png is not None:
        draw_release(finding, png)
    lines = [
        ("what", f"one release of gradient and loss, {trials} times with a canary and as often without"),
        ("settings", f"σ = {game.sigma:g}, σ_l = {game.sigma_loss:g}, q = {game.q:g}, C = {game.clip:g}"),
        ("ε shown, assuming nothing", f"{finding.epsilon_lower:.4f} (so many trials could show {_most(finding)})"),
        ("ε shown, by the trade-off curve", _number(finding.epsilon_lower_gaussian)),
    ]
    extra: dict[str, object] = {
        "epsilon_lower_gaussian": _finite(finding.epsilon_lower_gaussian),
        "trials": finding.trials,
        "statistic": finding.pure.guess.statistic,
        "true_positives": finding.pure.right,
        "false_positives": finding.pure.wrong,
    }
    _tell(finding, "release", lines, extra | settings_of(game), png, as_json)
    return finding.exceeded


def _training(settings: dict[str, Any], confidence: float, seed: int | None, png: Path | None, as_json: bool) -> bool:
    from fedfdp.audit import TrainingGame
    from fedfdp.audit.figure import draw_training
    from fedfdp.audit.separation import check_confidence
    from fedfdp.cli.audit_progress import counting

    check_confidence(confidence)
    game = TrainingGame(**settings)
    with counting("rounds", game.rounds) as count:
        finding = game.play(_seed(seed), confidence=confidence, on_progress=count)
    if png is not None:
        draw_training(finding, png)
    lines = [
        ("what", f"one run of {game.rounds} rounds, {game.canaries} canaries at {game.clients} clients"),
        ("settings", f"σ = {game.sigma:g}, σ_l = {game.sigma_loss:g}, q = {game.q:g}, C = {game.clip:g}"),
        ("guesses", f"{finding.correct} of {finding.guesses} right"),
        ("ε shown, assuming nothing", f"{finding.epsilon_lower:.4f} (so many guesses could show {_most(finding)})"),
    ]
    extra: dict[str, object] = {"guesses": finding.guesses, "correct": finding.correct}
    _tell(finding, "training", lines, extra | settings_of(game), png, as_json)
    return finding.exceeded


def _self_test(trials: int, confidence: float, seed: int | None, as_json: bool) -> bool:
    from fedfdp.audit import FAULTS, Fault, Trials
    from fedfdp.audit.separation import check_confidence
    from fedfdp.cli.audit_progress import counting

    check_confidence(confidence)
    found: list[tuple[str, ReleaseFinding]] = []
    for fault in (Fault("none: the mechanism as it is"), *FAULTS):
        with counting(f"trials, {fault.name}", trials) as count:
            played = Trials(trials, _randomness(seed), on_progress=count)
            found.append((fault.name, fault.audit(played, confidence=confidence)))
    honest = not found[0][1].exceeded
    missed = [name for name, finding in found[1:] if not finding.exceeded]
    right = honest and not missed
    if as_json:
        rows = [
            {
                "fault": name,
                "epsilon_claimed": finding.epsilon_claimed,
                "epsilon_lower": finding.epsilon_lower,
                "epsilon_lower_gaussian": _finite(finding.epsilon_lower_gaussian),
                "exceeded": finding.exceeded,
            }
            for name, finding in found
        ]
        print(json.dumps({"trials": trials, "confidence": confidence, "faults": rows, "right": right}))
        return not right
    from rich.console import Console
    from rich.table import Table

    table = Table("planted fault", "ε claimed", "ε shown", "by the trade-off curve", "claim exceeded", box=None)
    for name, finding in found:
        numbers = finding.epsilon_claimed, finding.epsilon_lower, finding.epsilon_lower_gaussian
        table.add_row(name, *map(_number, numbers), "yes" if finding.exceeded else "no")
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    if not honest:
        console.print("The mechanism as it is exceeds its claim.", style="bold red")
    if missed:
        console.print(f"Not found: {', '.join(missed)}; more --trials see more.", style="bold red")
    if right:
        console.print("Every fault was found, and the mechanism as it is keeps its claim.", style="bold")
    return not right


def _tell(
    finding: "ReleaseFinding | TrainingFinding",
    game: str,
    lines: list[tuple[str, str]],
    extra: dict[str, object],
    png: Path | None,
    as_json: bool,
) -> None:
    verdict = (
        "the claim is exceeded: the mechanism leaks more than the accountant states"
        if finding.exceeded
        else "the claim stands: nothing that was seen contradicts it (which proves nothing more)"
    )
    if as_json:
        answer = {
            "epsilon_lower": finding.epsilon_lower,
            "epsilon_claimed": _finite(finding.epsilon_claimed),
            "confidence": finding.confidence,
            "delta": finding.delta,
            "exceeded": finding.exceeded,
            "verdict": verdict,
            "game": game,
            "epsilon_ceiling": finding.epsilon_ceiling,
        }
        print(json.dumps(answer | extra | {"png": None if png is None else str(png)}, ensure_ascii=False))
        return
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    claim = ("ε claimed by the accountant", f"{_number(finding.epsilon_claimed)} at δ = {finding.delta:g}")
    for name, value in (*lines, claim, ("confidence", f"{finding.confidence:.4g}")):
        console.print(f"{name:<32} {value}")
    console.print(f"Verdict: {verdict}.", style="bold red" if finding.exceeded else "bold")
    if png is not None:
        console.print(f"plot: {png}")


def settings_of(game: "Game") -> dict[str, object]:
    """The settings a game was played with."""
    return {field.name: getattr(game, field.name) for field in fields(game)}


def _most(finding: "ReleaseFinding | TrainingFinding") -> str:
    return f"{finding.epsilon_ceiling:.2f} at most"


def _number(value: float) -> str:
    return "more than any noise explains" if math.isinf(value) else f"{value:.4f}"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _randomness(seed: int | None) -> "Randomness":
    from fedfdp.privacy.noise.randomness import Seeded
    from fedfdp.privacy.noise.secure import Secure

    return Secure() if seed is None else Seeded(_seed(seed))


def _seed(seed: int | None) -> int:
    import secrets

    if seed is not None and seed < 0:
        raise SettingError("seed", seed, "0 or more")
    return secrets.randbits(48) if seed is None else seed
