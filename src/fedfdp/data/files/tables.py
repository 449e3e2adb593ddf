"""Tables, CSV and Parquet, read piece by piece: a file of any length takes the memory of one piece.

What cannot be read raises a DataError that names file and row, and never shows the content of another cell.
"""

import csv as plain_csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from fedfdp.core.errors import DataError
from fedfdp.data.files import encode
from fedfdp.data.files.encode import Place
from fedfdp.data.files.paths import damage_named
from fedfdp.data.files.source import Piece, names_in, targets
from fedfdp.data.schema import Column, Facts, Numeric

MISSING = ["", "NA", "N/A", "#N/A", "NaN", "nan", "NAN", "null", "NULL", "None"]
BLOCK = 1 << 20  # bytes of a CSV read at once
PIECE = 1 << 14  # rows of a Parquet file read at once
HEADER = 1 << 20  # a longer first line is no header
_PARQUET_DAMAGE = (pa.ArrowException, OSError, UnicodeDecodeError)
_RAGGED = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*|[+-]?(inf|infinity)", re.IGNORECASE)


class CsvTable:
    """A .csv or .tsv file with a header. Columns wanted as numbers are parsed as numbers, all others stay text."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with open(path, "rb") as file:
            head = file.readline(HEADER)
        if head[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in head:
            raise DataError(f"{path}, row 0: not UTF-8 text (UTF-16 or binary); save it as UTF-8")
        try:
            line = re.split("[\r\n]", head.decode("utf-8-sig"), maxsplit=1)[0]
        except UnicodeDecodeError as error:
            raise DataError(f"{path}, header: not UTF-8 (byte {error.start}); save it as UTF-8") from None
        self.delimiter = max(",;\t", key=line.count)
        try:
            self.names = [name.strip() for name in next(plain_csv.reader([line], delimiter=self.delimiter), [])]
        except plain_csv.Error as error:
            raise DataError(f"{path}, header: cannot be read ({error}); write it again") from None
        check_names(path, self.names)

    def most_rows(self) -> int:
        """The number of lines below the header; there are at most as many rows."""
        count, last = 0, b"\n"
        with open(self.path, "rb") as file:
            while block := file.read(BLOCK):
                count, last = count + max(block.count(b"\n"), block.count(b"\r")), block[-1:]
        return count - (last in b"\r\n")

    def pieces(self, wanted: dict[str, bool]) -> Iterator[pa.RecordBatch]:
        """The wanted columns, some rows at a time; the flag says whether a column holds numbers."""
        types = {name: pa.float64() if number else pa.string() for name, number in wanted.items()}
        try:
            yield from self._read(types)
        except pa.ArrowInvalid as error:
            raise self._fault(wanted, str(error)) from None

    def types(self) -> dict[str, str]:
        """What each column seems to hold, judged by its first rows."""
        try:
            first = next(self._read(None), None)
        except pa.ArrowInvalid as error:
            raise self._fault({}, str(error)) from None
        return {name: str(first.schema.field(name).type) if first else "empty" for name in self.names}

    def _read(self, types: dict[str, pa.DataType] | None) -> Iterator[pa.RecordBatch]:
        if self.most_rows() < 1:
            return
        with pa.csv.open_csv(
            self.path,
            # The header was read already. Its names are given here without the spaces around them.
            read_options=pa.csv.ReadOptions(use_threads=False, block_size=BLOCK, column_names=self.names, skip_rows=1),
            parse_options=pa.csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(
                column_types=types,
                include_columns=list(types) if types is not None else [],
                null_values=MISSING,
                strings_can_be_null=True,
            ),
        ) as reader:
            yield from reader

    def _fault(self, wanted: dict[str, bool], reason: str) -> DataError:
        """Where the file is wrong, found by a second, slower look."""
        if ragged := _RAGGED.search(reason):
            row, cells = int(ragged[1]) - 1, f"{ragged[3]} cells, the header has {ragged[2]}"
            return DataError(f"{self.path}, row {row}: {cells}; quote cells that hold a separator")
        if "UTF8" in reason:
            return DataError(f"{self.path}, row {self._undecodable()}: not UTF-8; save it as UTF-8")
        try:
            found = self._no_number([name for name, number in wanted.items() if number])
        except pa.ArrowInvalid:
            found = None
        return found or DataError(f"{self.path}: not a CSV that can be read; write it again")

    def _no_number(self, names: list[str]) -> DataError | None:
        first = 1
        for piece in self._read(dict.fromkeys(names, pa.string())):
            bad: list[tuple[int, str, str]] = []
            for name in names:
                texts = enumerate(piece.column(name).to_pylist())
                wrong = ((row, name, text) for row, text in texts if text is not None and not _NUMBER.fullmatch(text))
                bad += [found] if (found := next(wrong, None)) else []
            if bad:
                row, name, text = min(bad)
                place = f"{self.path}, row {first + row}, column {name!r}"
                return DataError(f"{place}: {text!r:.40} is not a number; correct it, or list categories")
            first += len(piece)
        return None

    def _undecodable(self) -> int:
        with open(self.path, "rb") as file:
            for number, line in enumerate(file):
                try:
                    line.decode("utf-8")
                except UnicodeDecodeError:
                    return number
        return 0


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


Table = CsvTable | ParquetTable


def open_table(path: Path) -> Table:
    return ParquetTable(path) if path.suffix.lower() in (".parquet", ".pq") else CsvTable(path)


def check_names(path: Path, names: list[str]) -> None:
    seen: set[str] = set()
    for number, name in enumerate(names, 1):
        if not name:
            raise DataError(f"{path}, column {number}: has no name in the header; name it, or save without an index")
        if name in seen:
            raise DataError(f"{path}, column {name!r}: there are two of this name; rename one")
        seen.add(name)


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

    def most_rows(self) -> int:
        return self.table.most_rows()

    def pieces(self) -> Iterator[Piece]:
        wanted = {column.name: isinstance(column, Numeric) for column in self.columns}
        facts = self.facts
        if self.labelled:
            wanted |= {name: False for name in (facts.holder, facts.test, facts.unit) if name is not None}
            if facts.label is not None:
                wanted[facts.label] = facts.classes is None
        first = 1
        for batch in self.table.pieces(wanted):
            yield self._encoded(batch, first)
            first += len(batch)

    def _encoded(self, batch: pa.RecordBatch, first: int) -> Piece:
        def at(name: str) -> tuple[pa.Array, Place]:
            return batch.column(name), Place(str(self.path), name, first)

        x, start = np.empty((len(batch), *self.shape), np.float32), 0
        for column in self.columns:
            encode.encode(column, *at(column.name), x[:, start : start + column.width])
            start += column.width
        if not self.labelled:
            return Piece(x)
        facts = self.facts
        y = None if facts.label is None else targets(facts, *at(facts.label))
        test = None if facts.test is None else encode.marks(*at(facts.test))
        who = None if facts.holder is None else names_in(*at(facts.holder), "holder")
        return Piece(x, y, who, test, None if facts.unit is None else names_in(*at(facts.unit), "person"))
