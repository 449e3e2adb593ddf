"""Federated learning that is private for every record, fair to every data holder, and accurate."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedfdp.algorithms import (
        AFL,
        ALIDPFL,
        MRMTL,
        QFFL,
        TERM,
        ByLoss,
        Ditto,
        FedAvg,
        FedDyn,
        FedFair,
        FedFDP,
        FedFV,
        FedMGDA,
        FedProx,
        LocalOnly,
        PropFair,
        Scaffold,
        SemiVRed,
    )
    from fedfdp.core.errors import DivergedError, FedFDPError
    from fedfdp.data import Federation
    from fedfdp.fairness.metrics import ClientResults
    from fedfdp.features import Features
    from fedfdp.models.tasks import Task
    from fedfdp.privacy.dpsgd import DPSGD
    from fedfdp.runs import RunFolder
    from fedfdp.runs.config import Config
    from fedfdp.runs.released import load
    from fedfdp.runs.session import Result, Update
    from fedfdp.runs.train import train
    from fedfdp.training.participation import Participation
    from fedfdp.training.rounds import Evaluation, Step
    from fedfdp.training.server_optimizer import ServerOptimizer

    __version__: str

# Loaded when first used: the command line answers --help without importing torch.
_HOME = {
    "ClientResults": "fedfdp.fairness.metrics",
    "Evaluation": "fedfdp.training.rounds",
    "Step": "fedfdp.training.rounds",
    "Update": "fedfdp.runs.session",
    "Config": "fedfdp.runs.config",
    "DPSGD": "fedfdp.privacy.dpsgd",
    "AFL": "fedfdp.algorithms",
    "ALIDPFL": "fedfdp.algorithms",
    "ByLoss": "fedfdp.algorithms",
    "Ditto": "fedfdp.algorithms",
    "LocalOnly": "fedfdp.algorithms",
    "MRMTL": "fedfdp.algorithms",
    "FedFV": "fedfdp.algorithms",
    "FedMGDA": "fedfdp.algorithms",
    "PropFair": "fedfdp.algorithms",
    "SemiVRed": "fedfdp.algorithms",
    "TERM": "fedfdp.algorithms",
    "FedAvg": "fedfdp.algorithms",
    "FedDyn": "fedfdp.algorithms",
    "FedProx": "fedfdp.algorithms",
    "QFFL": "fedfdp.algorithms",
    "Scaffold": "fedfdp.algorithms",
    "Participation": "fedfdp.training.participation",
    "FedFDP": "fedfdp.algorithms",
    "DivergedError": "fedfdp.core.errors",
    "FedFDPError": "fedfdp.core.errors",
    "FedFair": "fedfdp.algorithms",
    "Features": "fedfdp.features",
    "Federation": "fedfdp.data",
    "Result": "fedfdp.runs.session",
    "RunFolder": "fedfdp.runs",
    "ServerOptimizer": "fedfdp.training.server_optimizer",
    "Task": "fedfdp.models.tasks",
    "load": "fedfdp.runs.released",
    "train": "fedfdp.runs.train",
}

__all__ = [
    "AFL",
    "ALIDPFL",
    "DPSGD",
    "MRMTL",
    "QFFL",
    "TERM",
    "ByLoss",
    "ClientResults",
    "Config",
    "Ditto",
    "DivergedError",
    "Evaluation",
    "Features",
    "FedAvg",
    "FedDyn",
    "FedFDP",
    "FedFDPError",
    "FedFV",
    "FedFair",
    "FedMGDA",
    "FedProx",
    "Federation",
    "LocalOnly",
    "Participation",
    "PropFair",
    "Result",
    "RunFolder",
    "Scaffold",
    "SemiVRed",
    "ServerOptimizer",
    "Step",
    "Task",
    "Update",
    "__version__",
    "load",
    "train",
]


def __getattr__(name: str) -> Any:
    import importlib.metadata

    if name == "__version__":
        return importlib.metadata.version("fedfdp")
    if name not in _HOME:
        raise AttributeError(f"module 'fedfdp' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
