"""An entry of the catalog: all that is known of one dataset before any of it is read."""

from collections.abc import Callable
from dataclasses import dataclass

from fedfdp.data.named.layout import Layout, Records
from fedfdp.data.named.origins import Origin


@dataclass(frozen=True)
class Embedded:
    """A dataset that is installed with another package: there is nothing to fetch."""

    package: str
    read: Callable[[], Records]


@dataclass(frozen=True)
class Entry:
    """A dataset's public facts, the layouts that its files come in and where to get them."""

    name: str
    records: int
    train: int  # how many are the official training part; they come first
    shape: tuple[int, int, int]  # of one record: channels, height, width
    classes: int
    brightest: int  # the largest value that a pixel can have
    sha256: str  # over all pixel bytes in (N, C, H, W) order, then one byte per label
    layouts: tuple[Layout, ...] = ()
    # Registries come before mirrors: a client that is not installed costs nothing, an unreachable host costs seconds.
    origins: tuple[Origin, ...] = ()
    embedded: Embedded | None = None  # in place of layouts and origins
    aliases: tuple[str, ...] = ()  # other names that people write

    def fault(self, records: Records) -> str | None:
        """Why these records are not this dataset; None if they are."""
        wanted = (self.records, *self.shape)
        if records.x.shape != wanted or records.y.shape != (self.records,):
            return f"holds {records.x.shape} images, not {wanted}"
        if records.digest() != self.sha256:
            return "its content is not the published one (SHA-256 differs)"
        return None
