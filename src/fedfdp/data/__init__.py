"""Where records come from and who holds them.

The words of this package:

- *record*: one input x with its target y. *Pool*: the tensors of all records, held once.
- *holder*: who owns records and keeps them, such as a hospital. *Client*: a holder that takes part in training; in a
  simulation, the part of a dataset that stands for one. *Federation*: all clients over one pool.
- *shard*: some records of a pool, by index: what a client trains on, or what it tests on.
- *unit*: what the guarantee protects: one record, or one *person*: all records with the same value in a column.
- *source*: what `data.source` names: a dataset of the catalog (`named/`), or files of your own (`files/`).
- *facts*: what is public about your own files (`schema.py`). *Private range*: a range that is not public, and is
  estimated under privacy.
- *partition*: which client gets which records of a dataset. *Split*: which of a client's records are for the test.
"""

from typing import TYPE_CHECKING

from fedfdp.data.clients import ClientData
from fedfdp.data.dataset import Dataset
from fedfdp.data.federation import Federation
from fedfdp.data.named.load import load
from fedfdp.data.shard import Shard

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
    "read_inputs",
]


def __getattr__(name: str) -> object:
    """What reads files is imported when it is first used: datasets by name need no pyarrow."""
    if name not in ("Meaning", "meaning", "read_inputs"):
        raise AttributeError(f"module 'fedfdp.data' has no attribute {name!r}")
    from fedfdp.data import predictions

    return getattr(predictions, name)
