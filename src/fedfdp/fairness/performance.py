"""What "performance" means when a model's service to the clients is compared: the loss, the accuracy, or your metric.

For reporting only. What a method releases and steers by is the loss, whatever is chosen here.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from fedfdp.core.errors import SettingError, nearest
from fedfdp.core.importing import imported

Metric = Callable[[Tensor, Tensor], object]  # (outputs, targets) of all of a client's records → one number
KNOWN = ("loss", "accuracy")


@dataclass(frozen=True)
class Performance:
    """A measure of how well a model serves one client."""

    name: str = "loss"
    function: Metric | None = None  # None: what `name` says

    @classmethod
    def of(cls, metric: str | Metric) -> "Performance":
        """From a setting: loss, accuracy, package.module:function, or a function itself."""
        if not isinstance(metric, str):
            return cls(str(getattr(metric, "__qualname__", type(metric).__name__)), metric)
        if ":" in metric:
            return cls(metric, imported(metric, "metric"))
        if metric not in KNOWN:
            raise SettingError("metric", metric, nearest(metric, KNOWN), "or package.module:function")
        return cls(metric)

    def check(self, classes: int | None) -> None:
        """Raises where there is nothing of the kind to be measured."""
        if self.name == "accuracy" and self.function is None and classes is None:
            raise SettingError("metric", self.name, "only for classes, and these targets are numbers", "take loss")

    def measure(self, client: str, outputs: Tensor, targets: Tensor) -> float:
        """The function's verdict on one client; NaN where it has none."""
        assert self.function is not None
        try:
            return float(self.function(outputs, targets))  # type: ignore[arg-type]
        except ZeroDivisionError:
            return math.nan
        except Exception as error:  # whatever the user's own code raises
            reason = (str(error).splitlines() or [""])[0]
            what = f"fails on the {len(targets)} records of client {client!r}: {type(error).__name__}: {reason}"
            raise SettingError(
                "metric", self.name, what, "it is given outputs and targets, and gives a number"
            ) from error
