"""Where records come from and who holds them: datasets by name, partitions, and clients with train and test data."""

from fedfdp.data.catalog import names
from fedfdp.data.federation import ClientData, Federation, Shard
from fedfdp.data.sources import Dataset, load

__all__ = ["ClientData", "Dataset", "Federation", "Shard", "load", "names"]
