"""Federated learning that is private for every record, fair to every data holder, and accurate."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedfdp.algorithms import ALIDPFL, QFFL, FedAvg, FedDyn, FedFair, FedFDP, FedProx, Scaffold
    from fedfdp.config import Config
    from fedfdp.data import Federation
    from fedfdp.errors import FedFDPError
    from fedfdp.fairness.metrics import ClientResults
    from fedfdp.participation import Participation
    from fedfdp.privacy.dpsgd import DPSGD
    from fedfdp.runs import RunFolder
    from fedfdp.runs.released import load
    from fedfdp.server import Server
    from fedfdp.session import Result, Update
    from fedfdp.trainer import Evaluation, Step
    from fedfdp.training import train

    __version__: str

# Loaded when first used: the command line answers --help without importing torch.
_HOME = {
    "ClientResults": "fedfdp.fairness.metrics",
    "Evaluation": "fedfdp.trainer",
    "Step": "fedfdp.trainer",
    "Update": "fedfdp.session",
    "Config": "fedfdp.config",
    "DPSGD": "fedfdp.privacy.dpsgd",
    "ALIDPFL": "fedfdp.algorithms",
    "FedAvg": "fedfdp.algorithms",
    "FedDyn": "fedfdp.algorithms",
    "FedProx": "fedfdp.algorithms",
    "QFFL": "fedfdp.algorithms",
    "Scaffold": "fedfdp.algorithms",
    "Participation": "fedfdp.participation",
    "FedFDP": "fedfdp.algorithms",
    "FedFDPError": "fedfdp.errors",
    "FedFair": "fedfdp.algorithms",
    "Federation": "fedfdp.data",
    "Result": "fedfdp.session",
    "RunFolder": "fedfdp.runs",
    "Server": "fedfdp.server",
    "load": "fedfdp.runs.released",
    "train": "fedfdp.training",
}

__all__ = [
    "ALIDPFL",
    "DPSGD",
    "QFFL",
    "ClientResults",
    "Config",
    "Evaluation",
    "FedAvg",
    "FedDyn",
    "FedFDP",
    "FedFDPError",
    "FedFair",
    "FedProx",
    "Federation",
    "Participation",
    "Result",
    "RunFolder",
    "Scaffold",
    "Server",
    "Step",
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
