"""The methods, one file each, by name or by import path."""

from fedfdp.algorithms.ali_dpfl import ALIDPFL
from fedfdp.algorithms.base import Algorithm
from fedfdp.algorithms.fedavg import FedAvg
from fedfdp.algorithms.feddyn import FedDyn
from fedfdp.algorithms.fedfair import FedFair
from fedfdp.algorithms.fedfdp import FedFDP
from fedfdp.algorithms.fedprox import FedProx
from fedfdp.algorithms.qffl import QFFL
from fedfdp.algorithms.scaffold import Scaffold
from fedfdp.errors import SettingError, nearest, require
from fedfdp.importing import imported

__all__ = [
    "ALGORITHMS",
    "ALIDPFL",
    "QFFL",
    "Algorithm",
    "FedAvg",
    "FedDyn",
    "FedFDP",
    "FedFair",
    "FedProx",
    "Scaffold",
    "find",
]

ALGORITHMS: dict[str, type[Algorithm]] = {
    kind.name: kind for kind in (FedAvg, FedProx, Scaffold, FedDyn, QFFL, ALIDPFL, FedFair, FedFDP)
}


def find(name: str) -> type[Algorithm]:
    """The method of that name, or the class at `package.module:Class`."""
    if ":" in name:
        kind = imported(name, "algorithm.name", "Class")
        derived = isinstance(kind, type) and issubclass(kind, Algorithm)
        require(derived, "algorithm.name", name, "not a class derived from fedfdp.algorithms.Algorithm")
        return kind  # type: ignore[no-any-return]
    if name not in ALGORITHMS:
        raise SettingError("algorithm.name", name, nearest(name, ALGORITHMS), "or package.module:Class")
    return ALGORITHMS[name]
