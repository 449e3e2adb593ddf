"""What a history of events costs, how many more would fit, and the same kept up round by round.

Every number but the paper's is an upper bound on the true ε. Schedules chosen during a run belong in `RDPFilter`.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal

from fedfdp.core.errors import SettingError, nearest
from fedfdp.privacy.accounting.events import (
    Adjacency,
    Event,
    History,
    check_delta,
    check_epsilon,
    history_of,
    merge,
    repeat,
    scale,
)
from fedfdp.privacy.accounting.pld import DISPLAY_INTERVAL, INTERVAL, pld_epsilon
from fedfdp.privacy.accounting.rdp import paper_epsilon, rdp_epsilon, rdp_max_count
from fedfdp.privacy.accounting.search import largest

Method = Literal["pld", "rdp", "paper"]

METHODS: tuple[Method, ...] = ("pld", "rdp", "paper")
MOST_ROUNDS = 10**12  # beyond this a budget is as good as unlimited

_FEW_KINDS = 8


def epsilon(
    events: Iterable[Event], delta: float, *, accountant: Method = "pld", adjacency: Adjacency = "zero-out"
) -> float:
    """The ε that the events cost together at δ, against an observer of all that was released from them.

    `zero-out`: one record's contribution removed, the number of records public (the add/remove curve).
    `replace-one`: one record exchanged for another. `paper` has one adjacency and proves nothing: see `paper_epsilon`.
    """
    check_delta(delta)
    if adjacency not in ("zero-out", "replace-one"):
        raise SettingError("adjacency", adjacency, nearest(adjacency, ["zero-out", "replace-one"]))
    if accountant == "paper":
        if adjacency != "zero-out":
            raise SettingError("accountant", "paper", "prints one number", "use pld or rdp for replace-one")
        return paper_epsilon(events, delta)
    return history_epsilon(history_of(events), delta, check_valid(accountant), adjacency)


def check_valid(accountant: str) -> Method:
    """Refuses what may not enforce a budget or sign a statement."""
    if accountant == "paper":
        allowed = "adds up curves that share a batch and so under-counts: it only displays and compares"
        raise SettingError("accountant", accountant, allowed, "use pld or rdp")
    if accountant not in ("pld", "rdp"):
        raise SettingError("accountant", accountant, nearest(accountant, METHODS))
    return "pld" if accountant == "pld" else "rdp"


@lru_cache(maxsize=65536)
def history_epsilon(
    history: History,
    delta: float,
    accountant: Method = "pld",
    adjacency: Adjacency = "zero-out",
    finest: float = INTERVAL,
) -> float:
    """Both accountants bound the same ε from above, so `pld` may take the smaller: where its grid is too coarse or δ
    too small for floating point, that is the Rényi bound."""
    value = rdp_epsilon(history, delta, adjacency)
    if accountant == "pld":
        value = min(value, pld_epsilon(history, delta, adjacency, finest))
    if adjacency == "replace-one":  # no less by definition; rounding could say otherwise where δ ≈ q
        value = max(value, history_epsilon(history, delta, accountant, "zero-out", finest))
    return value


def max_count(
    step: Sequence[Event], epsilon: float, delta: float, *, accountant: Method = "pld", after: Sequence[Event] = ()
) -> int:
    """The largest number of steps, after what was already released, whose ε is at most the budget. May be 0."""
    check_epsilon(epsilon)
    check_delta(delta)
    if accountant == "paper":
        return largest(lambda n: paper_epsilon([*after, *repeat(step, n)], delta), epsilon, fits=0, most=MOST_ROUNDS)
    return history_max_count(history_of(after), history_of(step), epsilon, delta, check_valid(accountant))


@lru_cache(maxsize=4096)
def history_max_count(base: History, step: History, epsilon: float, delta: float, accountant: Method) -> int:
    certain = rdp_max_count(base, step, epsilon, delta)  # a valid bound fits, so the tighter one does
    if accountant == "rdp" or certain >= MOST_ROUNDS:
        return min(certain, MOST_ROUNDS)
    cost = lambda n: history_epsilon(merge(base, scale(step, n)), delta, accountant)  # noqa: E731
    return largest(cost, epsilon, fits=certain, most=MOST_ROUNDS)


class Accountant:
    """Keeps count of events as they happen; asking costs little because equal histories are computed once.

    >>> spent = Accountant("rdp")
    >>> spent.add(Event(0.05, (2.0, 5.0), count=647))
    >>> round(spent.epsilon(1e-5), 2)
    3.52
    """

    def __init__(self, accountant: Method = "pld") -> None:
        self.accountant = check_valid(accountant)
        self._counts: dict[tuple[float, float], int] = {}

    def add(self, event: Event) -> None:
        kind = (event.q, event.sigma_effective)
        self._counts[kind] = self._counts.get(kind, 0) + event.count

    @property
    def history(self) -> History:
        return tuple((q, sigma, count) for (q, sigma), count in sorted(self._counts.items()))

    def epsilon(self, delta: float, adjacency: Adjacency = "zero-out") -> float:
        """To enforce and to sign: on the fine grid."""
        check_delta(delta)
        return history_epsilon(self.history, delta, self.accountant, adjacency)

    def upper_bound(self, delta: float) -> float:
        """To show after every round: never below `epsilon`, at most about half a percent above it, and cheap.

        ε rises with every count, so counts are rounded up to eight significant bits, and the grid is coarser.
        """
        check_delta(delta)
        return upper_bound(self.history, delta, self.accountant)


def upper_bound(history: History, delta: float, accountant: Method) -> float:
    """As `Accountant.upper_bound`."""
    if accountant == "rdp" or len(history) > _FEW_KINDS:
        return history_epsilon(history, delta, "rdp")
    rounded = tuple((q, sigma, _round_up(count)) for q, sigma, count in history)
    return history_epsilon(rounded, delta, "pld", "zero-out", DISPLAY_INTERVAL)


def _round_up(count: int) -> int:
    spare = max(0, count.bit_length() - 8)
    return -(-count >> spare) << spare
