"""The methods, one file each, by name or by import path. A new one is registered here and nowhere else."""

from fedfdp.algorithms.afl import AFL
from fedfdp.algorithms.ali_dpfl import ALIDPFL
from fedfdp.algorithms.base import Algorithm
from fedfdp.algorithms.by_loss import ByLoss
from fedfdp.algorithms.ditto import Ditto
from fedfdp.algorithms.fedavg import FedAvg
from fedfdp.algorithms.feddyn import FedDyn
from fedfdp.algorithms.fedfair import FedFair
from fedfdp.algorithms.fedfdp import FedFDP
from fedfdp.algorithms.fedfv import FedFV
from fedfdp.algorithms.fedmgda import FedMGDA
from fedfdp.algorithms.fedprox import FedProx
from fedfdp.algorithms.local_only import LocalOnly
from fedfdp.algorithms.mrmtl import MRMTL
from fedfdp.algorithms.parts import Parts
from fedfdp.algorithms.propfair import PropFair
from fedfdp.algorithms.qffl import QFFL
from fedfdp.algorithms.scaffold import Scaffold
from fedfdp.algorithms.semivred import SemiVRed
from fedfdp.algorithms.term import TERM
from fedfdp.core.errors import SettingError, nearest, require
from fedfdp.core.importing import imported
from fedfdp.core.settings import plain

__all__ = [
    "AFL",
    "ALGORITHMS",
    "ALIDPFL",
    "FIXED_PRICE",
    "MRMTL",
    "QFFL",
    "TERM",
    "Algorithm",
    "ByLoss",
    "Ditto",
    "FedAvg",
    "FedDyn",
    "FedFDP",
    "FedFV",
    "FedFair",
    "FedMGDA",
    "FedProx",
    "LocalOnly",
    "PropFair",
    "Scaffold",
    "SemiVRed",
    "algorithm_name",
    "algorithm_settings",
    "find",
]

ALGORITHMS: dict[str, type[Algorithm]] = {
    kind.name: kind
    for kind in (
        *(FedAvg, FedProx, Scaffold, FedDyn, QFFL, ALIDPFL, FedFair, FedFDP),
        *(AFL, TERM, PropFair, SemiVRed, FedMGDA, FedFV),
        *(LocalOnly, MRMTL, Ditto),
    )
}
# Those that have a private form, at a price known before the run: what a node allows unless its owner says otherwise.
FIXED_PRICE = tuple(name for name, kind in ALGORITHMS.items() if kind.private and not kind.adaptive)


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


def algorithm_settings(algorithm: Algorithm) -> dict[str, object]:
    """A method by name with its settings, for hashes; `lr_decay`, which older runs do not have, only if it is set."""
    values: dict[str, object] = {"name": algorithm_name(algorithm), **plain(algorithm)}
    if algorithm.lr_decay == 1.0:
        del values["lr_decay"]
    return values


def algorithm_name(algorithm: Algorithm) -> str:
    """How a config names this method."""
    kind = algorithm.method if isinstance(algorithm, Parts) else type(algorithm)
    known = ALGORITHMS.get(getattr(kind, "name", ""))
    return kind.name if known is kind else f"{kind.__module__}:{kind.__qualname__}"
