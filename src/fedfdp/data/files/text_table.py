"""Tables as text, .csv and the like, packed by gzip or not, read piece by piece.

The separator is judged by the header, and the decimal mark by the first rows unless it is given.
"""

import csv as plain_csv
import gzip
import re
import zlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from fedfdp.core.errors import DataError, SettingError
from fedfdp.data.files.paths import damage_named

BLOCK = 1 << 20  # bytes read at once
HEADER = 1 << 20  # a longer first line is no header
SEPARATORS = ",;\t|"
_PACKED_DAMAGE = (gzip.BadGzipFile, EOFError, zlib.error, OSError)
_RAGGED = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+)")
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*|[+-]?(inf|infinity)", re.IGNORECASE)
_COMMA, _POINT = (rf"^\s*[+-]?\d*{mark}\d+([eE][+-]?\d+)?\s*$" for mark in (",", r"\."))
_THOUSANDS = r"^\s*[+-]?[1-9]\d{0,2},\d{3}\s*$"


class TextTable:
    """A file with a header. Columns wanted as numbers are parsed as numbers, all others stay text."""

    def __init__(self, path: Path, missing: Collection[str], decimal: str | None = None) -> None:
        self.path, self.missing, self.decimal = path, list(missing), decimal
        self._rows: int | None = None
        with self._opened() as file:
            head = file.readline(HEADER)
        if head[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in head:
            raise DataError(f"{path}, row 0: not UTF-8 text (UTF-16 or binary); save it as UTF-8")
        try:
            line = re.split("[\r\n]", head.decode("utf-8-sig"), maxsplit=1)[0]
        except UnicodeDecodeError as error:
            raise DataError(f"{path}, header: not UTF-8 (byte {error.start}); save it as UTF-8") from None
        try:
            self.delimiter = max(SEPARATORS, key=lambda mark: len(_cells(line, mark)))
            self.names = [name.strip() for name in _cells(line, self.delimiter)]
        except plain_csv.Error as error:
            raise DataError(f"{path}, header: cannot be read ({error}); write it again") from None
        check_names(path, self.names)

    def most_rows(self) -> int:
        """The number of lines below the header; there are at most as many rows."""
        if self._rows is not None:
            return self._rows
        count, last = 0, b"\n"
        with self._opened() as file:
            while block := file.read(BLOCK):
                count, last = count + max(block.count(b"\n"), block.count(b"\r")), block[-1:]
        self._rows = count - (last in b"\r\n")
        return self._rows

    def pieces(self, wanted: dict[str, bool]) -> Iterator[pa.RecordBatch]:
        """The wanted columns, some rows at a time; the flag says whether a column holds numbers."""
        types = {name: pa.float64() if number else pa.string() for name, number in wanted.items()}
        mark = self.decimal_mark([name for name, number in wanted.items() if number])
        try:
            yield from self._read(types, mark)
        except pa.ArrowInvalid as error:
            raise self._fault(wanted, str(error), mark) from None

    def types(self) -> dict[str, str]:
        """What each column seems to hold, judged by its first rows."""
        mark = self.decimal or "."
        try:
            first = next(self._read(None, mark), None)
        except pa.ArrowInvalid as error:
            raise self._fault({}, str(error), mark) from None
        return {name: str(first.schema.field(name).type) if first else "empty" for name in self.names}

    def decimal_mark(self, names: list[str]) -> str:
        """The mark before the decimals in these columns: as it was given, or by the first rows.

        A comma is taken for it only where it separates no cells and no number has a point.
        """
        if self.decimal is not None or self.delimiter == "," or not names:
            return self.decimal or "."
        try:
            first = next(self._read(dict.fromkeys(names, pa.string()), "."), None)
        except pa.ArrowInvalid:
            return "."  # it will be found again, and named, by whoever reads the numbers
        if first is None or any(_any(first.column(name), _POINT) for name in names):
            return "."
        with_commas = [name for name in names if _any(first.column(name), _COMMA)]
        for name in with_commas:
            cells = pc.filter(first.column(name), pc.match_substring_regex(first.column(name), _COMMA))
            if not pc.all(pc.match_substring_regex(cells, _THOUSANDS)).as_py():
                return ","
        if with_commas:
            allowed = f"{self.path.name} has numbers such as {cells[0].as_py()!r} in column {with_commas[-1]!r}"
            fix = 'set data.decimal = "," if the comma stands before decimals; else write them without it'
            raise SettingError("data.decimal", None, f"{allowed}: are these thousands?", fix)
        return "."

    def _opened(self) -> IO[bytes] | gzip.GzipFile:
        if self.path.suffix.lower() == ".gz":
            return _Unpacked(self.path)
        return open(self.path, "rb")

    def _read(self, types: dict[str, pa.DataType] | None, mark: str) -> Iterator[pa.RecordBatch]:
        if self.most_rows() < 1:
            return
        packed = "gzip" if self.path.suffix.lower() == ".gz" else None
        with (
            pa.input_stream(str(self.path), compression=packed) as file,
            pa.csv.open_csv(
                file,
                # The header was read already. Its names are given here without the spaces around them.
                read_options=pa.csv.ReadOptions(
                    use_threads=False, block_size=BLOCK, column_names=self.names, skip_rows=1
                ),
                parse_options=pa.csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
                convert_options=pa.csv.ConvertOptions(
                    column_types=types,
                    include_columns=list(types) if types is not None else [],
                    null_values=self.missing,
                    # Of texts, whoever knows what they may be decides which are missing: "None" may be a class.
                    strings_can_be_null=types is None,
                    decimal_point=mark,
                ),
            ) as reader,
        ):
            yield from reader

    def _fault(self, wanted: dict[str, bool], reason: str, mark: str) -> DataError:
        """Where the file is wrong, found by a second, slower look."""
        if ragged := _RAGGED.search(reason):
            row, cells = int(ragged[1]) - 1, f"{ragged[3]} cells, the header has {ragged[2]}"
            return DataError(f"{self.path}, row {row}: {cells}; quote cells that hold a separator")
        if "UTF8" in reason:
            return DataError(f"{self.path}, row {self._undecodable()}: not UTF-8; save it as UTF-8")
        try:
            found = self._no_number([name for name, number in wanted.items() if number], mark)
        except pa.ArrowInvalid:
            found = None
        return found or DataError(f"{self.path}: not a CSV that can be read; write it again")

    def _no_number(self, names: list[str], mark: str) -> DataError | None:
        def wrong(text: str | None) -> bool:
            if text is None or text in self.missing:
                return False
            return (mark == "," and "." in text) or not _NUMBER.fullmatch(text.replace(mark, "."))

        first = 1
        for piece in self._read(dict.fromkeys(names, pa.string()), mark):
            bad: list[tuple[int, str, str]] = []
            for name in names:
                texts = enumerate(piece.column(name).to_pylist())
                found = next(((row, name, text) for row, text in texts if wrong(text)), None)
                bad += [found] if found else []
            if bad:
                row, name, text = min(bad)
                place = f"{self.path}, row {first + row}, column {name!r}"
                fix = "correct it, or list categories"
                if re.match(_POINT if mark == "," else _COMMA, text):
                    fix = f"is the mark before its decimals not {mark!r}? set data.decimal"
                return DataError(f"{place}: {text!r:.40} is not a number; {fix}")
            first += len(piece)
        return None

    def _undecodable(self) -> int:
        with self._opened() as file:
            for number, line in enumerate(file):
                try:
                    line.decode("utf-8")
                except UnicodeDecodeError:
                    return number
        return 0


class _Unpacked(gzip.GzipFile):
    """A file packed by gzip; one that is damaged is an error of one line."""

    def __init__(self, path: Path) -> None:
        self.packed = path
        super().__init__(path, "rb")

    def read(self, size: int | None = -1) -> bytes:
        with damage_named(self.packed, "gzip file", _PACKED_DAMAGE):
            return super().read(size)

    def readline(self, size: int | None = -1) -> bytes:
        with damage_named(self.packed, "gzip file", _PACKED_DAMAGE):
            return super().readline(size)


def _cells(line: str, mark: str) -> list[str]:
    return next(plain_csv.reader([line], delimiter=mark), [])


def _any(column: pa.Array, pattern: str) -> bool:
    return bool(pc.any(pc.match_substring_regex(column, pattern)).as_py())


def check_names(path: Path, names: list[str]) -> None:
    seen: set[str] = set()
    for number, name in enumerate(names, 1):
        if not name:
            raise DataError(f"{path}, column {number}: has no name in the header; name it, or save without an index")
        if name in seen:
            raise DataError(f"{path}, column {name!r}: there are two of this name; rename one")
        seen.add(name)
