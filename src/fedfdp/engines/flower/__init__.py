"""The same rounds between machines, on Flower: messages, the data holder's node, the coordinator."""

from importlib.util import find_spec

from fedfdp.core.errors import FedFDPError


def require_flower() -> None:
    """One clear line where the optional dependency is missing."""
    if find_spec("flwr") is None:
        raise FedFDPError("Flower is not installed; add it with: pip install 'fedfdp[flower]'")
