"""The cost of a private step of any model beside a plain one: what `fedfdp models check` prints."""

import copy
import math

from torch import Tensor, nn

from fedfdp.bench.measure import interleaved
from fedfdp.bench.peers.base import Setting, Task
from fedfdp.bench.peers.by_torch import Plain
from fedfdp.bench.peers.ours import Ours
from fedfdp.models.inspection import Cost

SECONDS = 0.7  # for the private step, and as long for the plain one


def step_cost(model: nn.Module, x: Tensor, y: Tensor) -> Cost:
    """Measured here and now; the model is left as it is."""
    plain, ours = (Task(copy.deepcopy(model), x, y, Setting()) for _ in range(2))
    timed = interleaved({"plain": Plain(plain), "ours": Ours(ours)}, seconds=SECONDS)
    private = timed.get("ours")
    if private is None:
        return Cost(len(x), math.inf, timed["plain"].seconds, math.inf)
    return Cost(len(x), private.seconds, timed["plain"].seconds, private.ratio)
