"""Privacy accounting: joint events, the accountants on dp-accounting, and the filter for adaptive schedules."""

from fedfdp.privacy.accounting.accountant import METHODS, Accountant, Method, check_valid, epsilon, max_count
from fedfdp.privacy.accounting.events import Adjacency, Event, History, delta_warning
from fedfdp.privacy.accounting.filter import RDPFilter
from fedfdp.privacy.accounting.rdp import ORDERS, REFERENCE_ORDERS

__all__ = [
    "METHODS",
    "ORDERS",
    "REFERENCE_ORDERS",
    "Accountant",
    "Adjacency",
    "Event",
    "History",
    "Method",
    "RDPFilter",
    "check_valid",
    "delta_warning",
    "epsilon",
    "max_count",
]
