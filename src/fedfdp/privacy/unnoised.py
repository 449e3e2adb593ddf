"""Rounds that a client answered without noise: no ε covers them, so they are told wherever its ε is.

What is here counts them and says so in words. It touches no file.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from fedfdp.core.errors import DataError

MOST_RUNS = 1000  # that are kept by name: whoever may ask could give a new name with every round
MOST_TOLD = 8  # by name, in an answer
MOST_NAMED = 3  # by name, in a line for people
OTHERS = ""  # the name of all further runs together

_RUN = re.compile(r"[A-Za-z0-9_-]{0,64}", re.ASCII)  # as questions name one


@dataclass(frozen=True)
class Part:
    """The rounds of one run."""

    run: str
    rounds: int
    method: str = ""
    first: str = ""  # dates
    last: str = ""

    @property
    def named(self) -> str:
        return f"run {self.run}" if self.run else "other runs"


@dataclass(frozen=True)
class Unnoised:
    """All such rounds of one client, by run, the latest run last. True if there is anything to tell."""

    parts: tuple[Part, ...] = ()
    restored: bool = False  # whether an older copy of its folder was put back, so that some may be missing here

    def __bool__(self) -> bool:
        return self.restored or bool(self.parts)

    @property
    def rounds(self) -> int:
        return sum(part.rounds for part in self.parts)

    def add(self, run: str, method: str, date: str) -> "Unnoised":
        """With one round more."""
        known = {part.run: part for part in self.parts}
        name = run if run in known or len(known) < MOST_RUNS else OTHERS
        before = known.pop(name, Part(name, 0, method, date))
        return replace(self, parts=(*known.values(), replace(before, rounds=before.rounds + 1, last=date)))

    def merge(self, other: "Unnoised") -> "Unnoised":
        """Of two copies of one count, of every run the larger number."""
        known = {part.run: part for part in self.parts}
        for part in other.parts:
            if part.run not in known or known[part.run].rounds < part.rounds:
                known[part.run] = part
        return Unnoised(tuple(known.values()), self.restored or other.restored)

    def in_words(self) -> str:
        """For a line that says already that there was no noise."""
        lost = "an older copy of its folder was put back, and how many were answered before that is not known"
        if not self.parts:
            return "not known: an older copy of its folder was put back"
        shown = _shortened(self.parts, MOST_NAMED)
        total = f"{self.rounds:,} {'round' if self.rounds == 1 else 'rounds'}"
        if len(shown) == 1:
            said = f"{total} in {shown[0].named}"
        else:
            said = f"{total}: " + ", ".join(f"{part.rounds:,} in {part.named}" for part in reversed(shown))
        return f"{said}; {lost}" if self.restored else said

    def to_dict(self) -> dict[str, Any]:
        return {"runs": [asdict(part) for part in self.parts], "restored": self.restored}

    def told(self) -> dict[str, Any]:
        """What a coordinator is told: the latest runs by name, the others together."""
        return {
            "runs": [[part.run, part.rounds] for part in _shortened(self.parts, MOST_TOLD)],
            "restored": self.restored,
        }


def _shortened(parts: tuple[Part, ...], most: int) -> tuple[Part, ...]:
    if len(parts) <= most:
        return parts
    named = [part for part in parts if part.run != OTHERS][1 - most :]
    rest = sum(part.rounds for part in parts) - sum(part.rounds for part in named)
    return (Part(OTHERS, rest), *named)


def of_dict(values: Mapping[str, Any]) -> Unnoised:
    """What `to_dict` wrote."""
    return Unnoised(tuple(Part(**part) for part in values["runs"]), bool(values["restored"]))


def told_in(report: str) -> Unnoised | None:
    """What a client's report says of it; None if it says nothing, as older versions. A malformed one is a DataError."""
    try:
        said = json.loads(report)
        if not isinstance(said, dict) or "unnoised" not in said:
            return None
        runs, restored = said["unnoised"]["runs"], said["unnoised"]["restored"]
        if not isinstance(restored, bool) or not isinstance(runs, list) or len(runs) > MOST_TOLD:
            raise ValueError("no list of runs")
        parts = tuple(Part(run, rounds) for run, rounds in runs)
        for part in parts:
            if type(part.run) is not str or not _RUN.fullmatch(part.run):
                raise ValueError("an impossible name of a run")
            if type(part.rounds) is not int or not 0 < part.rounds < 10**12:
                raise ValueError("an impossible number of rounds")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DataError(f"malformed report of rounds without noise: {error}") from None
    return Unnoised(parts, restored)


def warnings_of(said: Mapping[str, str]) -> list[str]:
    """For a statement: which clients answered rounds without noise, beside what its ε covers. No line if none did."""
    if not said:
        return []
    clients = "; ".join(f"{client} ({words})" for client, words in said.items())
    return [
        "rounds that these nodes have also answered without noise, in other runs, of this coordinator or others: "
        f"{clients}. No epsilon covers what those rounds gave away of their training records"
    ]
