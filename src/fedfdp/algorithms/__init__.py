"""The methods, one file each, by name or by import path."""

import importlib

from fedfdp.algorithms.ali_dpfl import ALIDPFL
from fedfdp.algorithms.base import Algorithm
from fedfdp.algorithms.fedavg import FedAvg
from fedfdp.algorithms.feddyn import FedDyn
from fedfdp.algorithms.fedfair import FedFair
from fedfdp.algorithms.fedfdp import FedFDP
from fedfdp.algorithms.fedprox import FedProx
from fedfdp.algorithms.qffl import QFFL
from fedfdp.algorithms.scaffold import Scaffold
from fedfdp.errors import SettingError, nearest

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
        module, _, attribute = name.partition(":")
        try:
            kind = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError, ValueError) as error:
            raise SettingError("algorithm.name", name, f"cannot be imported: {error}", "check PYTHONPATH") from None
        if not (isinstance(kind, type) and issubclass(kind, Algorithm)):
            raise SettingError("algorithm.name", name, "not a class derived from fedfdp.algorithms.Algorithm")
        return kind
    if name not in ALGORITHMS:
        raise SettingError("algorithm.name", name, nearest(name, ALGORITHMS), "or package.module:Class")
    return ALGORITHMS[name]
