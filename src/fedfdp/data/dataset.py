"""Records in one pool, before anyone holds them: what a partition deals out to clients."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedfdp.core.errors import SettingError, nearest
from fedfdp.core.trees import Inputs
from fedfdp.fairness.metrics.groups import Groups


@dataclass(frozen=True, eq=False)
class Dataset:
    """Records in one pool."""

    name: str
    x: Inputs  # inputs, (N, …)
    y: Tensor  # targets, (N,)
    classes: int | None  # None for regression
    official_train: int | None = None  # so many come first: the published training part
    columns: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)  # what else is known of each record
    class_names: tuple[str, ...] = ()  # in the order of the class numbers; none: the numbers themselves are shown
    groups: Groups | None = None  # of each record, where a column for them was asked for

    def __len__(self) -> int:
        return len(self.y)

    def subset(self, kept: NDArray[np.int64]) -> "Dataset":
        """A dataset of these records alone; the published split no longer applies."""
        columns = {name: np.asarray(values)[kept] for name, values in self.columns.items()}
        groups = None if self.groups is None else self.groups.at(kept)
        return replace(self, x=self.x[kept], y=self.y[kept], official_train=None, columns=columns, groups=groups)

    def column(self, name: str, setting: str = "column") -> NDArray[np.generic]:
        """A column's values; `label` is always one of them. `setting` is what asked for it, for the error."""
        if name in self.columns:
            return np.asarray(self.columns[name])
        if name == "label":
            return self.y.numpy()
        raise SettingError(setting, name, f"{self.name} has no such column", nearest(name, [*self.columns, "label"]))
