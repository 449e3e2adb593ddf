"""What a run's settings leave open, chosen from public facts: n_i, columns, task, trained weights and ε.

Nothing here reads a record, and what is given stays as it is. The numbers were chosen by measurement on public tables
(`examples/tables.py --part chosen`); docs/planning.md says how they come about.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from fedfdp.algorithms.base import Algorithm
from fedfdp.core.errors import SettingError
from fedfdp.core.settings import left_out
from fedfdp.privacy.accounting import Event
from fedfdp.privacy.accounting.events import delta_warning
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.training.budget import LOSS_NOISE, rate_for, resolve_privacy
from fedfdp.training.facts import PublicFacts
from fedfdp.training.server_optimizer import ServerOptimizer
from fedfdp.training.strength import signal

DELTA = 1e-5
ROUNDS, MOST_ROUNDS = 100, 400  # with every record in a batch; with few of them
BATCHES = 2_500, 20_000  # records of all clients in a round: of a large model, of a small one
WORK = 2e7  # records times trained weights of a round, between those two

CLIP = 0.3  # C of one trained layer, over the length of a record with its constant input
CURVATURE = {"classification": 0.5, "regression": 2.0}  # the most that a loss bends along one output
SWAY = {"classification": 4.0, "regression": 0.5}  # how far noise may move an output, if nothing pulled it back
MOMENTUM, AVERAGE = 0.9, 0.95

DEEP_CLIP = 0.1  # of several trained layers: C, and the way η·C·rounds, as measured for the preset `default`
DEEP_REACH, DEEP_SWAY = 1200.0, 0.085
PLAIN_RATE, PLAIN_DEEP_RATE = 0.5, 0.1  # η without privacy

FAIRNESS = 2.0  # λ_s at most
FAIR_NOISE = 0.3  # how much of a weight the noise of a released loss may make out


@dataclass(frozen=True)
class Choice:
    """One setting that was left out."""

    setting: str
    value: object
    why: str


@dataclass(frozen=True)
class Settled:
    """The settings with nothing left open, and what was chosen."""

    algorithm: Algorithm
    privacy: DPSGD | None
    server: ServerOptimizer
    rounds: int
    choices: tuple[Choice, ...] = ()


def settle(
    facts: PublicFacts | None,
    algorithm: Algorithm,
    privacy: DPSGD | None,
    server: ServerOptimizer,
    rounds: int | None,
    *,
    share: float = 1.0,
    before: Sequence[Event] = (),
) -> Settled:
    """Fills in what is left out. Without `facts`, what needs them must be given.

    Args:
        facts: of records and model; None if they are not known.
        algorithm: the method.
        privacy: None: without privacy.
        server: what the server adds.
        rounds: None: solved from ε and σ, or chosen if only ε is given.
        share: the part of the rounds that a client takes part in.
        before: what every client releases before round 0, paid from the same budget.
    """
    said: list[Choice] = []
    given_rounds, given = rounds, privacy
    if privacy is not None:
        privacy, rounds = _scheduled(facts, algorithm, privacy, rounds, share, said)
    privacy, rounds = resolve_privacy(privacy, algorithm, rounds, share=share, before=before)
    if privacy is not None and given is not None:
        if facts is not None:
            _check_delta(privacy.delta, facts)
        _note_solved(given, given_rounds, privacy, rounds, said)
    algorithm, privacy, server = _step(facts, algorithm, privacy, server, rounds, share, said)
    algorithm = _fair(facts, algorithm, privacy, server, said)
    if server.robust is not None:
        algorithm.check_robust(server.robust)
    return Settled(algorithm, privacy, server, rounds, tuple(said))


# The schedule -------------------------------------------------------------------------------------------------------


def _scheduled(
    facts: PublicFacts | None,
    algorithm: Algorithm,
    privacy: DPSGD,
    rounds: int | None,
    share: float,
    said: list[Choice],
) -> tuple[DPSGD, int | None]:
    """δ, q and, where ε alone is given, the rounds."""
    if left_out(privacy, "delta"):
        largest = max(facts.sizes) if facts else 1
        delta = DELTA if largest < 1 / DELTA else 10.0 ** -(math.floor(math.log10(largest)) + 1)
        said.append(Choice("privacy.delta", delta, f"below 1/n of the largest holder, {largest:,}" if facts else ""))
        privacy = replace(privacy, delta=delta)
    if privacy.sigma is None and rounds is None and privacy.epsilon is None:
        allowed = "left out together with sigma and rounds; two of them are needed, or epsilon alone"
        raise SettingError("privacy.epsilon", None, allowed, "set epsilon = 3.0")
    both_open = privacy.sigma is None and rounds is None
    if left_out(privacy, "q"):
        needed = _known(facts, "privacy.q")
        batch = min(max(WORK / needed.weights, BATCHES[0]), BATCHES[1])
        q = min(1.0, batch / needed.total)
        q = 1.0 if q > 0.5 else round(q, 2 - math.ceil(math.log10(q)))  # the whole rather than most of it
        why = f"{q * needed.total:,.0f} of {needed.total:,} of unit {needed.unit} in a round: the more, the less noise"
        if privacy.sigma is not None and rounds is None and privacy.epsilon is not None:
            tried = replace(privacy, q=q)
            q = min(q, rate_for(tried, algorithm, ROUNDS))
            why = f"so that epsilon pays for {ROUNDS} rounds with the given sigma"
        privacy = replace(privacy, q=q)
        said.append(Choice("privacy.q", q, why))
    if both_open:
        rounds = min(MOST_ROUNDS, round(ROUNDS / math.sqrt(privacy.q)))
        said.append(Choice("rounds", rounds, "enough to converge; sigma is solved for them, so more cost time, not ε"))
    return privacy, rounds


def _check_delta(delta: float, facts: PublicFacts) -> None:
    """A δ of 1/n or more is met by a mechanism that publishes a record: no guarantee at all."""
    largest = max(facts.sizes)
    if delta_warning(delta, largest):
        n = f"1/n = {1 / largest:.2g} of the largest holder ({largest:,} of unit {facts.unit})"
        allowed = f"not below {n}: it protects nobody"
        raise SettingError(
            "privacy.delta", delta, allowed, f"leave it out, or take {min(1e-5, 0.1 / largest):.1g} or less"
        )


def _note_solved(given: DPSGD, rounds: int | None, solved: DPSGD, count: int, said: list[Choice]) -> None:
    if given.sigma is None:
        said.append(Choice("privacy.sigma", solved.sigma, f"the least with which {count:,} rounds fit epsilon"))
    elif rounds is None:
        said.append(Choice("rounds", count, "all that epsilon pays for with the given sigma"))
    if given.epsilon is None:
        said.append(Choice("privacy.epsilon", round(solved.epsilon or 0, 4), "what the rounds cost"))
    if left_out(given, "sigma_loss"):
        said.append(Choice("privacy.sigma_loss", solved.sigma_loss, f"{LOSS_NOISE:g} sigma: the loss is nearly free"))


# The step -----------------------------------------------------------------------------------------------------------


def _step(
    facts: PublicFacts | None,
    algorithm: Algorithm,
    privacy: DPSGD | None,
    server: ServerOptimizer,
    rounds: int,
    share: float,
    said: list[Choice],
) -> tuple[Algorithm, DPSGD | None, ServerOptimizer]:
    """η, C, the optimiser and the average belong together: where η is given, the others are the plainest."""
    chooses = left_out(algorithm, "lr")
    private = privacy is not None
    deep = chooses and _known(facts, "algorithm.lr").layers != 1
    if privacy is not None and left_out(privacy, "clip"):
        clip, why = DEEP_CLIP, "as the given lr is for" if not chooses else "for several trained layers"
        if chooses and not deep:
            assert facts is not None
            clip = _digits(CLIP * facts.length)
            why = f"{CLIP:g} of the usual length of a record's inputs, {facts.length:.2f}"
        privacy = replace(privacy, clip=clip)
        said.append(Choice("privacy.clip", clip, why))
    if left_out(server, "optimizer"):
        optimizer: Literal["momentum", "none"] = "momentum" if chooses and private and not deep else "none"
        server = replace(server, optimizer=optimizer)
        said.append(Choice("server.optimizer", optimizer, _why_optimizer(optimizer, chooses)))
    if left_out(server, "average"):
        average = min(AVERAGE, 1 - 2 / max(rounds, 2)) if chooses and private else 0.0
        server = replace(server, average=average)
        why = "the model is an average over the last rounds: their noise cancels" if average else "the last model"
        said.append(Choice("server.average", average, why))
    if chooses:
        assert facts is not None
        rate, why = _rate(facts, algorithm, privacy, server, rounds, share, deep)
        algorithm = replace(algorithm, lr=rate)
        said.append(Choice("algorithm.lr", rate, why))
    return algorithm, privacy, server


def _why_optimizer(optimizer: str, chooses: bool) -> str:
    if optimizer == "momentum":
        return "columns of different spread are learnt at the same pace"
    return "each step as the method makes it" if chooses else "the given lr is the whole step"


def _rate(
    facts: PublicFacts,
    algorithm: Algorithm,
    privacy: DPSGD | None,
    server: ServerOptimizer,
    rounds: int,
    share: float,
    deep: bool,
) -> tuple[float, str]:
    """η, so that η·C·rounds is far enough to arrive and not so far that noise takes over."""
    if privacy is None:
        rate = PLAIN_DEEP_RATE if deep else PLAIN_RATE / (CURVATURE[facts.task] * facts.length)
        return _digits(rate), "without privacy, for inputs of this length"
    speed = 1 / (1 - server.momentum) if server.optimizer == "momentum" else 1.0
    steps = rounds * algorithm.private_steps(None, privacy)
    loud = facts.total * signal(privacy, algorithm, rounds, share) / math.sqrt(len(facts.sizes))
    if deep:
        reach, sway = DEEP_REACH, DEEP_SWAY * loud
    else:
        reach = CLIP * speed / CURVATURE[facts.task] * steps  # η is then 1/(curvature·length), whatever C is
        sway = SWAY[facts.task] * loud / facts.length
    way = min(reach, sway)
    bound = "the noise allows no more" if sway < reach else "as far as a step may go"
    rate = way / (steps * privacy.clip * speed)
    return _digits(rate), f"η·C = {rate * privacy.clip:.3g} a round, {way:.3g} in all with momentum: {bound}"


def _fair(
    facts: PublicFacts | None,
    algorithm: Algorithm,
    privacy: DPSGD | None,
    server: ServerOptimizer,
    said: list[Choice],
) -> Algorithm:
    """λ_s and the first F, of methods that have them; and C_l where losses begin above the usual one."""
    offered: dict[str, tuple[float, str]] = {}
    usual = getattr(type(algorithm), "loss_clip", math.inf)
    if facts is not None and getattr(algorithm, "loss_clip", 0.0) == usual < facts.first_loss:
        bound = _digits(1.25 * facts.first_loss)
        why = f"losses begin at ln(classes) = {facts.first_loss:.3g}"
        offered["loss_clip"] = bound, why
        if getattr(algorithm, "loss_ceiling", bound) < bound:
            offered["loss_ceiling"] = bound, why
        algorithm = replace(algorithm, **{n: value for n, (value, _) in offered.items()})  # type: ignore[arg-type]
    if left_out(algorithm, "server_lam"):
        offered["server_lam"] = FAIRNESS, "losses are released as they are"
        if server.robust in ("median", "trimmed"):
            offered["server_lam"] = 0.0, f"server.robust = {server.robust}: every client has one vote"
        elif privacy is not None and facts is None:
            del offered["server_lam"]  # left open until the sizes are known
        elif privacy is not None and facts is not None:
            # The root mean square over holders: one tiny holder with a wild weight brings its noise to all.
            usual = math.sqrt(len(facts.sizes) / sum(size**-2 for size in facts.sizes))
            kept = getattr(algorithm, "smoothing", 0.0)
            noise = privacy.sigma_loss * getattr(algorithm, "loss_clip", 1.0) / (privacy.q * usual)
            noise *= math.sqrt((1 - kept) / (1 + kept))
            lam = _digits(min(FAIRNESS, FAIR_NOISE / noise), 2)
            offered["server_lam"] = (
                lam,
                f"the noise in released losses is {noise:.2g}, as root mean square over holders",
            )
    if left_out(algorithm, "initial_loss") and facts is not None and facts.classes is None and facts.scaled:
        # The squared error of a model that says 0 where targets are spread evenly over [−1, 1].
        offered["initial_loss"] = 0.333, "the squared error of 0 for targets spread over their declared range"
    said += [Choice(f"algorithm.{name}", value, why) for name, (value, why) in offered.items()]
    values: dict[str, Any] = {name: value for name, (value, _) in offered.items()}
    return replace(algorithm, **values)


def _known(facts: PublicFacts | None, setting: str) -> PublicFacts:
    if facts is None:
        allowed = "chosen from the sizes of the records, which are not known here"
        raise SettingError(setting, None, allowed, f"set {setting.rpartition('.')[2]}")
    return facts


def _digits(value: float, count: int = 3) -> float:
    """Rounded to so many significant digits: what is shown is what is used."""
    return float(f"{value:.{count}g}")
