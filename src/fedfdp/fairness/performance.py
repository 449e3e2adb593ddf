"""Which metric Ψ is the spread of: the loss, the accuracy, another metric of outputs, or a function of yours.

For reporting only. What a method releases and steers by is the loss, whatever is chosen here.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from torch import Tensor

from fedfdp.core.errors import SettingError, nearest
from fedfdp.core.importing import imported
from fedfdp.fairness.metrics import METRICS, Task
from fedfdp.fairness.metrics.how_well import OF_TASKS
from fedfdp.fairness.metrics.outputs import FUNCTIONS, OfOutputs
from fedfdp.fairness.metrics.results import OWN


@dataclass(frozen=True)
class Performance:
    """The metric that was chosen, and every function that an evaluation computes of a client's outputs."""

    name: str = "loss"
    function: OfOutputs | None = None  # None: the metric of that name

    @classmethod
    def of(cls, metric: str | OfOutputs) -> "Performance":
        """From a setting: a metric's name, package.module:function, or a function itself."""
        if not isinstance(metric, str):
            return cls(str(getattr(metric, "__qualname__", type(metric).__name__)), metric)
        if ":" in metric:
            return cls(metric, imported(metric, "metric"))
        known = ("loss", "accuracy", *FUNCTIONS, *OF_TASKS)
        if metric not in known:
            raise SettingError("metric", metric, nearest(metric, known), "or package.module:function")
        return cls(metric)

    def check(self, classes: int | None, of_task: Collection[str] = ()) -> None:
        """Raises where there is nothing of the kind to be measured; `of_task` are metrics that the task has."""
        if self.function is None and self.name in OF_TASKS and self.name not in of_task:
            raise SettingError("metric", self.name, "only for the task that has it", "take loss or accuracy")
        if self.function is None and classes is None and "regression" not in METRICS[self.name].tasks:
            raise SettingError("metric", self.name, "only for classes, and these targets are numbers", "take loss")

    def functions(self, classes: int | None, *, usual: bool = True) -> dict[str, OfOutputs]:
        """What is computed of each client's outputs, by the name under which it is kept.

        `usual`: a record has one class, or numbers; metrics that are declared for all runs exist only there.
        """
        task: Task = "regression" if classes is None else "classification"
        found = {name: f for name, f in FUNCTIONS.items() if usual and task in METRICS[name].tasks}
        return found if self.function is None else found | {OWN: self.function}

    def measure(
        self, functions: Mapping[str, OfOutputs], client: str, outputs: Tensor, targets: Tensor
    ) -> dict[str, float]:
        """The values of these functions at one client; NaN where one has no value."""
        named = ((name, self.name if name == OWN else name, f) for name, f in functions.items())
        return {name: _value(shown, f, client, outputs, targets) for name, shown, f in named}


def _value(name: str, function: OfOutputs, client: str, outputs: Tensor, targets: Tensor) -> float:
    try:
        return float(function(outputs, targets))  # type: ignore[arg-type]
    except ZeroDivisionError:
        return math.nan
    except Exception as error:  # whatever the user's own code raises
        reason = (str(error).splitlines() or [""])[0]
        what = f"fails on the {len(targets)} records of client {client!r}: {type(error).__name__}: {reason}"
        raise SettingError("metric", name, what, "it is given outputs and targets, and gives a number") from error
