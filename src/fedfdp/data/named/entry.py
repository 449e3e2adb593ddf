"""An entry of the catalog: all that is known of one dataset before any of it is read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fedfdp.data.named.layout import Layout, Records, Rows
from fedfdp.data.named.origins import Origin
from fedfdp.data.schema import Facts, class_names

Content = Records | Rows


@dataclass(frozen=True)
class Embedded:
    """A dataset that is installed with another package: there is nothing to fetch."""

    package: str
    read: Callable[[], Records]


@dataclass(frozen=True)
class Made:
    """A dataset that is made from others of the catalog, always in the same way: there is nothing to fetch for it."""

    parts: tuple[str, ...]  # their names
    make: Callable[..., Records]  # takes the records of each part


@dataclass(frozen=True)
class Card:
    """Where a dataset comes from, what may be done with it, and who holds its records by nature."""

    source: str
    licence: str
    column: str  # the column that names the holders: the dataset's natural partition
    holders: str  # who they are, in words


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A dataset's public facts, the layouts that its files come in and where to get them."""

    name: str
    records: int
    shape: tuple[int, ...]  # of one record
    classes: int
    sha256: str  # of the decoded content
    layouts: tuple[Layout, ...] = ()
    # Registries come before mirrors: a client that is not installed costs nothing, an unreachable host costs seconds.
    origins: tuple[Origin, ...] = ()
    embedded: Embedded | None = None  # in place of layouts and origins
    made: Made | None = None  # in place of layouts and origins
    aliases: tuple[str, ...] = ()  # other names that people write
    card: Card | None = None  # of a dataset whose records have holders by nature

    ending = ".safetensors"  # of its file in the cache

    def fault(self, content: Content) -> str | None:
        """Why this content is not this dataset; None if it is."""
        return None if content.digest() == self.sha256 else "its content is not the published one (SHA-256 differs)"

    @property
    def labels(self) -> tuple[str, ...]:
        """What the classes are called, in the order of their numbers."""
        return tuple(map(str, range(self.classes)))


@dataclass(frozen=True, kw_only=True)
class Images(Entry):
    """A dataset of images. Its digest is over all pixel bytes in (N, C, H, W) order, then one byte per label."""

    train: int  # how many are the official training part; they come first
    brightest: int  # the largest value that a pixel can have
    called: tuple[str, ...] = ()  # the classes by name; none: by number
    columns: Mapping[str, Callable[[], NDArray[np.generic]]] = field(default_factory=dict)  # what else is known of each

    @property
    def labels(self) -> tuple[str, ...]:
        return self.called or super().labels

    def fault(self, content: Content) -> str | None:
        wanted = (self.records, *self.shape)
        if not isinstance(content, Records):
            return "holds no images"
        if content.x.shape != wanted or content.y.shape != (self.records,):
            return f"holds {content.x.shape} images, not {wanted}"
        return super().fault(content)


@dataclass(frozen=True, kw_only=True)
class Table(Entry):
    """A table with a column that names the holders. Its digest is over the text of the columns that are kept."""

    facts: Facts  # what is public about its columns

    ending = ".csv"

    def fault(self, content: Content) -> str | None:
        if not isinstance(content, Rows):
            return "holds no table"
        if len(content) != self.records:
            return f"holds {len(content):,} rows, not {self.records:,}"
        return super().fault(content)

    @property
    def labels(self) -> tuple[str, ...]:
        return class_names(self.facts)

    def read_as(self, asked: Facts | None) -> Facts:
        """Its facts, with the groups that are asked for."""
        if asked is None:
            return self.facts
        return replace(self.facts, group=asked.group, group_input=asked.group_input, favourable=asked.favourable)
