"""A column of text as token numbers and a mask, by a tokenizer in a local folder. Never fetches one."""

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedfdp.core.errors import SettingError
from fedfdp.core.trees import Leaf
from fedfdp.data.columns import Words
from fedfdp.data.files.cells import Place
from fedfdp.models.losses import IGNORED

IDS, MASK, TABLE = "input_ids", "attention_mask", "table"


@functools.cache
def tokenizer_at(folder: str, setting: str) -> Any:
    """The tokenizer that transformers saved in this folder."""
    try:
        from transformers import AutoTokenizer
    except ImportError:
        fix = "pip install 'fedfdp[hf]'"
        raise SettingError(setting, folder, "needs transformers, which is not installed", fix) from None
    if not Path(folder).is_dir():
        raise SettingError(setting, folder, "no such folder", "give the folder of a tokenizer; none is fetched")
    try:
        found = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # whatever transformers raises for a folder that it cannot read
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        raise SettingError(setting, folder, f"holds no tokenizer: {reason}", "save_pretrained writes one") from None
    if found.pad_token is None:
        found.pad_token = found.eos_token or found.unk_token
    return found


def form_of_words(words: Words) -> tuple[Leaf, ...]:
    """What a text becomes: token numbers, and a mask that is 1 where there is one."""
    return Leaf(IDS, (words.length,), "int64"), Leaf(MASK, (words.length,), "int64")


def tokens(words: Words, values: pa.Array, place: Place) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The token numbers of each text and their mask."""
    texts = values.cast(pa.string()).to_pylist()
    if (missing := next((row for row, text in enumerate(texts) if not (text or "").strip()), None)) is not None:
        raise place.error(missing, "is empty; fill it in or remove the row")
    take = tokenizer_at(words.tokenizer, f"data.columns.{words.name}.tokenizer")
    found = take(texts, padding="max_length", truncation=True, max_length=words.length, return_tensors="np")
    return found[IDS].astype(np.int64), found[MASK].astype(np.int64)


def told_apart(ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.int64]:
    """The targets of a language model: the tokens themselves, of which padding does not count."""
    return np.where(mask > 0, ids, IGNORED)
