"""Texts, one file for each record, one folder per class; each becomes token numbers and a mask."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from fedfdp.core.errors import DataError
from fedfdp.core.trees import Form
from fedfdp.data.columns import Words
from fedfdp.data.files.cells import Place
from fedfdp.data.files.sorted import Sorted, files_in
from fedfdp.data.files.source import Piece
from fedfdp.data.files.words import form_of_words, tokens, told_apart

PIECE = 1 << 12  # texts tokenised at once
LARGEST = 1 << 26  # bytes; a larger file is no record


def texts_in(folder: Path, top: Path) -> list[Path]:
    return files_in(folder, top, (".txt",))


@dataclass(frozen=True, eq=False)
class TextSource(Sorted):
    """A folder of texts, sorted by class."""

    dtype: type[np.generic] = np.int64

    @property
    def _words(self) -> Words:
        assert self.facts.words is not None
        return self.facts.words

    @property
    def shape(self) -> tuple[int, ...]:
        return (self._words.length,)

    @property
    def inputs(self) -> Form:
        return form_of_words(self._words)

    def pieces(self) -> Iterator[Piece]:
        for code, paths in self.coded("text"):
            for start in range(0, len(paths), PIECE):
                some = paths[start : start + PIECE]
                place = Place(str(self.path), self._words.name, trained=not self.labelled)
                found = tokens(self._words, pa.array([_read(path) for path in some]), place)
                y = None if code is None else np.full(len(some), code, np.int64)
                yield Piece(found, told_apart(*found) if self.labelled and code is None else y)


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST:
            raise DataError(f"{path}: larger than {LARGEST >> 20} MB; split it into records")
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise DataError(f"{path}: text that is not UTF-8; write it as UTF-8") from None
    except OSError as error:
        raise DataError(f"{path}: {(error.strerror or 'cannot be read').lower()}; check data.source") from None
    if not text.strip():
        raise DataError(f"{path}: an empty text; fill it in or remove it")
    return text
