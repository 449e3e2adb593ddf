"""Privacy accounting: events, and the accountants that say what they cost. Your own derives from `Accountant`."""

from fedfdp.privacy.accounting.base import Accountant
from fedfdp.privacy.accounting.events import Adjacency, Event, History, delta_warning
from fedfdp.privacy.accounting.registry import ACCOUNTANTS, caveat, epsilon, find, max_count

__all__ = [
    "ACCOUNTANTS",
    "Accountant",
    "Adjacency",
    "Event",
    "History",
    "caveat",
    "delta_warning",
    "epsilon",
    "find",
    "max_count",
]
