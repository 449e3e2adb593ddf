"""What somebody who watches a run should look at. Each alarm has a kind, for machines, and a text."""

from typing import Literal

from fedfdp.report.section import Json

NEARLY = 0.9  # of a budget
GROWN = 2.0  # times its smallest value, a loss has diverged or is about to
QUIET_ROUNDS, QUIET_SECONDS = 10.0, 60.0  # without a word, in rounds' length and at least

Kind = Literal["divergence", "dropouts", "budget", "quiet", "ended"]
KINDS: tuple[Kind, ...] = ("divergence", "dropouts", "budget", "quiet", "ended")


def alarms(run: Json, now: float) -> list[Json]:
    """Of a run as the page shows it."""
    found: list[tuple[Kind, str]] = [*_ended(run), *_divergence(run), *_dropouts(run), *_budget(run)]
    if run["state"] == "running" and run["written"] and run["pace"]:
        silent = now - run["written"]
        if silent > max(QUIET_SECONDS, QUIET_ROUNDS * run["pace"]):
            found.append(
                ("quiet", f"no round has ended for {silent / 60:.0f} minutes; one usually takes {run['pace']:.1f} s")
            )
    return [{"kind": kind, "text": text} for kind, text in found]


def _ended(run: Json) -> list[tuple[Kind, str]]:
    if run["state"] == "failed":
        return [("ended", f"the run failed: {run['why']}")]
    if run["state"] == "lost":
        return [("ended", "the run's process is gone without a word: it was killed, or the machine was")]
    return []


def _divergence(run: Json) -> list[tuple[Kind, str]]:
    """A loss that is no number any more, or that has grown far above where it was."""
    if run["state"] == "diverged":
        return [("divergence", str(run["why"]))]
    losses = run["history"].get("loss") or []
    if not losses:
        return []
    before = [loss for loss in losses if loss is not None]
    if losses[-1] is None and before:  # null stands for NaN and infinities
        return [("divergence", "the loss is no number any more: the run has diverged; lower the step size or C")]
    if len(before) > 1 and before[-1] > GROWN * min(before) > 0:
        text = f"the loss has grown from {min(before):.4g} to {before[-1]:.4g}: the run may be diverging"
        return [("divergence", text)]
    return []


def _dropouts(run: Json) -> list[tuple[Kind, str]]:
    standing = run["standing"] or []
    if run["state"] not in ("running", "stopping") or not standing:
        return []
    away = [
        (name, one)
        for name, one in zip(run["clients"]["names"], standing, strict=True)
        if one["state"] in ("late", "refused", "left out", "missing")
    ]
    found: list[tuple[Kind, str]] = []
    if away:
        named = "; ".join(f"{name}: {one['why'] or one['state']}" for name, one in away[:5])
        more = f"; and {len(away) - 5} more" if len(away) > 5 else ""
        found.append(("dropouts", f"{len(away)} of {len(standing)} nodes do not take part: {named}{more}"))
    if run["quorum"] and len(standing) - len(away) < run["quorum"]:
        found.append(
            ("dropouts", f"a round needs {run['quorum']} nodes: the run waits for them, and ends if they stay away")
        )
    return found


def _budget(run: Json) -> list[tuple[Kind, str]]:
    """Budgets that will not last to the last round: ε grows about as the square root of the rounds."""
    if run["state"] not in ("running", "stopping"):
        return []
    names, spent = run["clients"]["names"], run["spent"] or {"epsilon": [], "budget": []}
    progress = run["round"] / run["rounds"] if run["rounds"] else 1.0
    short, out = [], []
    for name, used, budget in zip(names, spent["epsilon"], spent["budget"], strict=False):
        if budget and used is not None and used >= NEARLY * budget and (used / budget) ** 2 > progress + 0.02:
            short.append(f"{name} ({used / budget:.0%})")
    for name, one in zip(names, run["standing"] or [], strict=False):
        if one["state"] == "out of budget":
            out.append(name)
    found: list[tuple[Kind, str]] = []
    if short:
        named = f"{', '.join(short[:5])}{' and others' if len(short) > 5 else ''}"
        found.append(("budget", f"the budget is nearly spent, long before the last round: {named}"))
    if out:
        named = f"{', '.join(out[:5])}{' and others' if len(out) > 5 else ''}"
        found.append(("budget", f"no budget is left at {named}"))
    return found
