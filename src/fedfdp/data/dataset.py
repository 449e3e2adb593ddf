"""Records in one pool, before anyone holds them: what a partition deals out to clients."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedfdp.core.errors import SettingError, nearest
from fedfdp.core.trees import Inputs


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

    def __len__(self) -> int:
        return len(self.y)

    def subset(self, kept: NDArray[np.int64]) -> "Dataset":
        """A dataset of these records alone; the published split no longer applies."""
        columns = {name: np.asarray(values)[kept] for name, values in self.columns.items()}
        return replace(self, x=self.x[kept], y=self.y[kept], official_train=None, columns=columns)

    def column(self, name: str) -> NDArray[np.generic]:
        """A column's values; `label` is always one of them."""
        if name in self.columns:
            return np.asarray(self.columns[name])
        if name == "label":
            return self.y.numpy()
        raise SettingError("column", name, f"{self.name} has no such column", nearest(name, [*self.columns, "label"]))
