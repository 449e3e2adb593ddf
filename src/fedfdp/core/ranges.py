"""The range of every number that a config, a coordinator or a client's memory may set, and the one way to check it.

The ranges keep everything before the noise within single precision, whatever the records are (docs/privacy.md says
why). A check reads public values only, never a record, so anybody may see it fail.
"""

import functools
import typing
from dataclasses import dataclass
from numbers import Real

from fedfdp.core.errors import SettingError


@dataclass(frozen=True)
class Range:
    """From `low` to `high`, both allowed; NaN is in no range."""

    low: float
    high: float
    meaning: str
    fix: str = ""

    def check(self, name: str, value: object) -> None:
        """Raises a SettingError that names the number, unless it is within the range."""
        if not (isinstance(value, Real) and self.low <= typing.cast(float, value) <= self.high):
            shown = value if len(repr(value)) <= 40 else f"{value!r:.40}…"
            raise SettingError(name, shown, f"{self.meaning} from {self.low:g} to {self.high:g}", self.fix)

    def nearest(self, value: float) -> float:
        """The number itself; if it is beyond an end of the range, that end."""
        return min(max(value, self.low), self.high)


# The private step. C of a round is clip · clip_scale, so it is within BOUND whenever both are within theirs.
BOUND = Range(1e-15, 1e15, "a bound on a gradient's norm")
CLIP = Range(1e-12, 1e12, "a bound on a gradient's norm", "leave it out to have it chosen")
CLIP_SCALE = Range(1e-3, 1e3, "a multiple of the configured clip")
SAMPLING = Range(1e-9, 1, "a sampling rate", "0.05 means 5 % of the records in a batch")
NOISE = Range(1e-12, 1e9, "a noise multiplier", "leave it out to have it solved; remove [privacy] for none")
LOSS_BOUND = Range(1e-12, 1e12, "a bound on a record's loss", "2.5 is usual")
LOSS = Range(-1e15, 1e15, "a mean loss")

# What weighs a record or an update.
LAMBDA = Range(0, 1e6, "a fairness λ", "0 switches it off")
KAPPA = Range(1, 1e6, "the largest weight of a record", "2 lets one count for up to twice the mean")
GAMMA = Range(1e-12, 1e6, "what is added to a gradient's norm", "0.01 is usual")
EXPONENT = Range(0, 20, "a fairness exponent", "1 is usual, 0 is FedAvg")
TILT = Range(0, 1e6, "a tilt", "1 is usual, 0 is FedAvg")
PROXIMAL = Range(0, 1e6, "a proximal weight", "0.01 is usual, 0 is FedAvg")
DYNAMIC = Range(1e-9, 1e6, "a regularisation", "0.1 is usual")
MOST_WEIGHT = Range(1, 1e6, "the largest weight of an update", "10 is usual")
SHARE = Range(0, 1, "a part of a whole")
QUANTILE_STEP = Range(1e-6, 10, "the size of a bound's steps", "0.2 is usual")

# Steps and rounds.
RATE = Range(1e-20, 1e6, "a step size", "leave it out to have it chosen")
DECAY = Range(1e-300, 1, "what the step size is multiplied by after a round", "1 keeps it, 0.99 is usual")
STEPS = Range(1, 1e6, "a number of steps", "1 is usual")
TAU = Range(1, 100, "a number of local steps")
PAST = Range(0, 1000, "a number of rounds", "0 looks at the clients of the round only")
RECORDS = Range(1, 2**31, "a number of records", "64 is usual")
ROUND = Range(0, 2**31, "a round's number")
ROUNDS = Range(1, 2**31, "a number of rounds", "100 is usual")
BUDGET_STEPS = Range(1, 2**31, "a number of steps", "leave it out for what ε allows")

# What a data holder allows.
ALLOWED_NOISE = Range(1e-12, 1e9, "a noise multiplier", "1 is usual, more means more noise")
ALLOWED_STEPS = Range(1, 1e6, "a number of batches in a round", "10000 is usual")
ALLOWED_WEIGHTS = Range(1, 1e12, "a number of weights", "100000000 is usual")
ALLOWED_ANSWERS = Range(0, 2**31, "a number of answers", "1000 is usual, 0 allows none")


@functools.cache
def declared(kind: type) -> tuple[tuple[str, Range], ...]:
    """The fields of a dataclass that are annotated with a range: `clip: Annotated[float, CLIP]`.

    A subclass that gives a field another default keeps its range.
    """
    found: dict[str, Range] = {}
    for base in reversed(kind.__mro__):
        for name, hint in typing.get_type_hints(base, include_extras=True).items():
            for part in (hint, *typing.get_args(hint)):  # the parts, for `Annotated[…] | None`
                found.update((name, range_) for range_ in getattr(part, "__metadata__", ()) if type(range_) is Range)
    return tuple(found.items())


def check(record: object, name: str) -> None:
    """Raises a SettingError unless every number of the record is within its range; None means left open and passes."""
    for field, range_ in declared(type(record)):  # type: ignore[arg-type]
        value = getattr(record, field)
        if value is not None:
            range_.check(f"{name}.{field}" if name else field, value)
