"""The accountants by name, and the two questions that people ask of one: what events cost, and how many fit."""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from fedfdp.core.errors import SettingError, nearest, require
from fedfdp.core.importing import imported
from fedfdp.privacy.accounting.base import Accountant
from fedfdp.privacy.accounting.events import Adjacency, Event, check_delta, check_epsilon
from fedfdp.privacy.accounting.filter import RenyiFilter
from fedfdp.privacy.accounting.paper import Paper
from fedfdp.privacy.accounting.pld import PLD
from fedfdp.privacy.accounting.rdp import RDP

ACCOUNTANTS: dict[str, Accountant] = {"pld": PLD(), "rdp": RDP(), "paper": Paper(), "filter": RenyiFilter()}


def find(name: str, setting: str = "accountant", *, plans: bool = False, enforces: bool = False) -> Accountant:
    """The accountant of that name, or one made of the class at `package.module:Class`.

    `plans`: it must price a schedule fixed beforehand, which a filter does not. `enforces`: it must be an upper bound.
    """
    if ":" not in name and name not in ACCOUNTANTS:
        fit = [n for n, a in ACCOUNTANTS.items() if not (plans and a.adaptive) and not (enforces and a.unsound)]
        raise SettingError(setting, name, nearest(name, fit), "or package.module:Class")
    found = ACCOUNTANTS[name] if name in ACCOUNTANTS else _own(name, setting)
    if enforces:
        require(not found.unsound, setting, name, f"{found.unsound}: it only displays and compares", "use pld or rdp")
    if plans:
        allowed = "a filter claims its whole budget, whatever a schedule costs"
        require(not found.adaptive, setting, name, allowed, "use pld or rdp")
    return found


def _own(path: str, setting: str) -> Accountant:
    kind = imported(path, setting, "Class")
    derived = isinstance(kind, type) and issubclass(kind, Accountant)
    require(derived, setting, path, "not a class derived from fedfdp.privacy.Accountant", "see docs/privacy.md")
    changed = issubclass(kind, tuple(type(known) for known in ACCOUNTANTS.values()))
    allowed = "derived from an accountant of this library, whose shortcuts may not hold for another price"
    require(not changed, setting, path, allowed, "derive from fedfdp.privacy.Accountant itself")
    try:
        return _made(kind)
    except TypeError as error:
        raise SettingError(setting, path, f"cannot be made without arguments: {error}", "see docs/privacy.md") from None


@lru_cache
def _made(kind: type[Accountant]) -> Accountant:
    """One object per class: what was computed for it is remembered by object."""
    return kind()


def caveat(name: str) -> str:
    """What has to be said beside the numbers of an accountant, if anything."""
    if unsound := find(name).unsound:
        return f"not valid: {unsound}"
    return "its ε is its author's claim, which nothing here proves" if ":" in name else ""


def epsilon(
    events: Iterable[Event], delta: float, *, accountant: str = "pld", adjacency: Adjacency = "zero-out"
) -> float:
    """The ε that the events cost together at δ, against an observer of all that was released from them.

    Args:
        events: what is released, in any order.
        delta: the probability with which ε may fail.
        accountant: "pld", "rdp", "paper" (to compare: it proves nothing), or your own as `package.module:Class`.
        adjacency: "zero-out": one record's contribution removed, the number of records public (the add/remove curve);
            "replace-one": one record exchanged for another.
    """
    check_delta(delta)
    if adjacency not in ("zero-out", "replace-one"):
        raise SettingError("adjacency", adjacency, nearest(adjacency, ["zero-out", "replace-one"]))
    found = find(accountant, plans=True)
    if adjacency == "replace-one" and not found.replace_one:
        raise SettingError("accountant", accountant, "prints one number", "use pld or rdp for replace-one")
    return found.epsilon(found.history(events), delta, adjacency)


def max_count(
    step: Sequence[Event], epsilon: float, delta: float, *, accountant: str = "pld", after: Sequence[Event] = ()
) -> int:
    """The largest number of steps, after what was already released, whose ε is at most the budget. May be 0."""
    check_epsilon(epsilon)
    check_delta(delta)
    found = find(accountant, plans=True)
    return found.max_count(found.history(after), found.history(step), epsilon, delta)
