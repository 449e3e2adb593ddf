"""Tables, CSV and Parquet, read piece by piece: a file of any length takes the memory of one piece.

What cannot be read raises a DataError that names file and row, and never shows the content of another cell.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from fedfdp.core.trees import Form, Leaf
from fedfdp.data.columns import Column, Numeric
from fedfdp.data.files import encode
from fedfdp.data.files.cells import Place, distinct, numbers
from fedfdp.data.files.paths import PARQUET, damage_named, kind_of
from fedfdp.data.files.source import Numbers, Piece, names_in, targets
from fedfdp.data.files.text_table import TextTable, check_names
from fedfdp.data.files.words import TABLE, form_of_words, tokens, told_apart
from fedfdp.data.schema import Facts, class_names, group_of

PIECE = 1 << 14  # rows of a Parquet file read at once
_PARQUET_DAMAGE = (pa.ArrowException, OSError, UnicodeDecodeError)


class ParquetTable:
    """A .parquet file; its own types say which columns hold numbers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with damage_named(self.path, "Parquet file", _PARQUET_DAMAGE):
            # With a buffer, columns are read page by page, not a whole row group at once.
            self.file = pa.parquet.ParquetFile(path, buffer_size=1 << 18, pre_buffer=False)
            self.names = list(self.file.schema_arrow.names)
        check_names(path, self.names)

    def most_rows(self) -> int:
        return int(self.file.metadata.num_rows)

    def pieces(self, wanted: dict[str, bool]) -> Iterator[pa.RecordBatch]:
        with damage_named(self.path, "Parquet file", _PARQUET_DAMAGE):
            yield from self.file.iter_batches(PIECE, columns=list(wanted), use_threads=False)

    def types(self) -> dict[str, str]:
        return {field.name: str(field.type) for field in self.file.schema_arrow}


Table = TextTable | ParquetTable


def open_table(path: Path, facts: Facts) -> Table:
    """The table in a file, which is read as the facts say: what counts as missing, and the decimal mark."""
    return ParquetTable(path) if kind_of(path) in PARQUET else TextTable(path, facts.missing_texts, facts.decimal)


@dataclass(frozen=True, eq=False)
class TableSource:
    """A table as a stream of encoded pieces."""

    path: Path
    table: Table
    facts: Facts
    columns: tuple[Column, ...]  # the inputs
    labelled: bool  # False: only the inputs are read
    dtype: type[np.generic] = np.float32

    @property
    def shape(self) -> tuple[int, ...]:
        return (sum(column.width for column in self.columns),)

    @property
    def inputs(self) -> Form:
        """Where there is a text: its tokens, their mask, and all other columns as one input more."""
        if (text := self.facts.words) is None:
            return ()
        return (*form_of_words(text), *((Leaf(TABLE, self.shape, "float32"),) if self.columns else ()))

    def most_rows(self) -> int:
        return self.table.most_rows()

    def pieces(self) -> Iterator[Piece]:
        wanted = {column.name: isinstance(column, Numeric) for column in self.columns}
        facts = self.facts
        if facts.words is not None:
            wanted[facts.words.name] = False
        if self.labelled:
            wanted |= {n: False for n in (facts.holder, facts.test, facts.unit, facts.group) if n is not None}
            if facts.label is not None:
                wanted[facts.label] = facts.classes is None
        first = 1
        for batch in self.table.pieces(wanted):
            yield self._encoded(batch, first)
            first += len(batch)

    def _encoded(self, batch: pa.RecordBatch, first: int) -> Piece:
        kept = self._labelled(batch) if self.labelled and self.facts.unlabelled == "skip" else None
        if kept is not None:
            batch = batch.take(pa.array(kept))

        def at(name: str) -> tuple[pa.Array, Place]:
            place = Place(str(self.path), name, first, self.facts.missing_texts, kept, trained=not self.labelled)
            return batch.column(name), place

        x, start = np.empty((len(batch), *self.shape), np.float32), 0
        for column in self.columns:
            encode.encode(column, *at(column.name), x[:, start : start + column.width])
            start += column.width
        facts, spoken = self.facts, None
        inputs: Numbers | tuple[Numbers, ...] = x
        if (text := facts.words) is not None:
            spoken = tokens(text, *at(text.name))
            inputs = (*spoken, x) if self.columns else spoken
        if not self.labelled:
            return Piece(inputs)
        y = None if facts.label is None else targets(facts, *at(facts.label))
        if spoken is not None and facts.task == "language":
            y = told_apart(*spoken)
        test = None if facts.test is None else encode.marks(*at(facts.test))
        who = None if facts.holder is None else names_in(*at(facts.holder), "holder")
        whose = None if facts.unit is None else names_in(*at(facts.unit), "person")
        group = group_of(facts)
        groups = None
        if group is not None:
            values, place = at(group.name)
            groups = encode.codes(values, group.categories, place, group)
        return Piece(inputs, y, who, test, whose, groups)

    def _labelled(self, batch: pa.RecordBatch) -> NDArray[np.int64]:
        """The rows that have a label."""
        label = self.facts.label or ""
        place = Place(str(self.path), label, missing=self.facts.missing_texts)
        if self.facts.classes is None:
            return np.flatnonzero(~np.isnan(numbers(batch.column(label), place)))
        return np.flatnonzero(distinct(batch.column(label), place, class_names(self.facts))[1] >= 0)
