"""What a client may release, and what it costs."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedfdp.privacy.accounting import Accountant, Event, epsilon
    from fedfdp.privacy.clipping import ClippedSum, clipped_sum
    from fedfdp.privacy.dpsgd import DPSGD
    from fedfdp.privacy.ledger import Ledger, LedgerBook
    from fedfdp.privacy.planning.planner import Plan, plan

# Loaded when first used: planning needs no torch, clipping no accountant.
_HOME = {
    "Accountant": "accounting",
    "ClippedSum": "clipping",
    "DPSGD": "dpsgd",
    "Event": "accounting",
    "Ledger": "ledger",
    "LedgerBook": "ledger",
    "Plan": "planning",
    "clipped_sum": "clipping",
    "epsilon": "accounting",
    "plan": "planning",
}

__all__ = [
    "DPSGD",
    "Accountant",
    "ClippedSum",
    "Event",
    "Ledger",
    "LedgerBook",
    "Plan",
    "clipped_sum",
    "epsilon",
    "plan",
]


def __getattr__(name: str) -> object:
    import importlib

    if name not in _HOME:
        raise AttributeError(f"module 'fedfdp.privacy' has no attribute {name!r}")
    return getattr(importlib.import_module(f"fedfdp.privacy.{_HOME[name]}"), name)
