"""Where records come from and who holds them: datasets by name, your own files, partitions, clients with their data."""

from typing import TYPE_CHECKING, Any

from fedfdp.data.federation import ClientData, Federation, Shard
from fedfdp.data.named.catalog import names
from fedfdp.data.named.dataset import Dataset, load

if TYPE_CHECKING:
    from fedfdp.data.predictions import Meaning, meaning, read_inputs

__all__ = [
    "ClientData",
    "Dataset",
    "Federation",
    "Meaning",
    "Shard",
    "load",
    "meaning",
    "names",
    "read_inputs",
]


def __getattr__(name: str) -> Any:
    """What reads files is loaded when first used: datasets by name need no pyarrow."""
    if name not in ("Meaning", "meaning", "read_inputs"):
        raise AttributeError(f"module 'fedfdp.data' has no attribute {name!r}")
    from fedfdp.data import predictions

    return getattr(predictions, name)
