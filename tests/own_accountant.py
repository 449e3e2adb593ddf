"""An accountant that somebody wrote: plain composition. Loose, and valid: k events that are (ε₁, δ/k)-DP each are
(k·ε₁, δ)-DP together, and events of different kinds add up."""

from fedfdp.privacy import Accountant
from fedfdp.privacy.accounting import find
from fedfdp.privacy.accounting.rdp import RDP


class PlainComposition(Accountant):
    replace_one = False

    def price(self, history, delta, adjacency):
        events = sum(count for _, _, count in history)
        return sum(count * find("rdp").epsilon(((q, sigma, 1),), delta / events) for q, sigma, count in history)


class Broken(PlainComposition):
    def price(self, history, delta, adjacency):
        return float("nan")


class Derived(RDP):
    def price(self, history, delta, adjacency):
        return 2 * super().price(history, delta, adjacency)


class Unsound(PlainComposition):
    unsound = "is a guess"


class Unfinished(Accountant):
    pass
