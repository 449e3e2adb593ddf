"""Texts as token numbers and a mask, by a tokenizer in a local folder. Never fetches one.

What was made of the texts of training is kept, under a name made of their content, the tokenizer's and the length. The
files hold what the texts hold, so only their owner may read them.
"""

import contextlib
import functools
import hashlib
import io
import logging
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedfdp.core import files
from fedfdp.core.errors import SettingError
from fedfdp.core.trees import Leaf
from fedfdp.data.columns import Words
from fedfdp.data.files.cells import Place
from fedfdp.data.named.cache import place as data_place
from fedfdp.models.losses import IGNORED

log = logging.getLogger("fedfdp")

KEPT = 256  # fewer texts are tokenised in less time than a file takes
DESCRIBES = (".json", ".txt", ".model", ".jinja", ".tiktoken", ".vocab")  # endings of what a tokenizer is made of
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
    if found.pad_token is None:
        fix = "give it a pad_token and save it again: pads count nowhere"
        raise SettingError(setting, folder, "has no token to pad with, nor one for the end or for unknown words", fix)
    return found


def form_of_words(words: Words) -> tuple[Leaf, ...]:
    """What a text becomes: token numbers, and a mask that is 1 where there is one."""
    return Leaf(IDS, (words.length,), "int64"), Leaf(MASK, (words.length,), "int64")


def tokens(words: Words, values: pa.Array, place: Place) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The token numbers of each text and their mask."""
    texts = values.cast(pa.string()).to_pylist()
    if (missing := next((row for row, text in enumerate(texts) if not (text or "").strip()), None)) is not None:
        raise place.error(missing, "is empty; fill it in or remove the row")
    setting = f"data.columns.{words.name}.tokenizer"
    file = None if place.trained or len(texts) < KEPT else _place(words, texts, setting)
    if file is None or (found := _kept(file, (2, len(texts), words.length))) is None:
        take, length = tokenizer_at(words.tokenizer, setting), words.length
        if length <= (added := take.num_special_tokens_to_add()):
            allowed = f"above {added}: so many tokens the tokenizer adds to every text"
            raise SettingError(f"data.columns.{words.name}.length", length, allowed, "64 is usual")
        told: dict[str, Any] = {"padding": "max_length", "truncation": True, "max_length": length}
        made = take(texts, **told, return_attention_mask=True, return_tensors="np")
        found = np.stack([made[IDS], made[MASK]]).astype(np.int32)
        if file is not None:
            _keep(file, found)
    return found[0].astype(np.int64), found[1].astype(np.int64)


def _place(words: Words, texts: list[str], setting: str) -> Path:
    sha = hashlib.sha256(f"{_identity(words.tokenizer, setting)} {words.length}".encode())
    for text in texts:
        raw = text.encode()
        sha.update(b"%d:" % len(raw) + raw)
    return data_place() / "tokens" / f"{sha.hexdigest()[:32]}.npy"


@functools.cache
def _identity(folder: str, setting: str) -> str:
    """What a tokenizer makes of texts, as a digest: the files of its folder but weights, and versions of libraries."""
    if not Path(folder).is_dir():
        tokenizer_at(folder, setting)  # says what is wrong
    sha = hashlib.sha256()
    for package in ("transformers", "tokenizers"):
        with contextlib.suppress(PackageNotFoundError):
            sha.update(f"{package} {version(package)}\n".encode())
    for path in sorted(Path(folder).iterdir()):
        if path.is_file() and path.suffix in DESCRIBES:
            raw = path.read_bytes()
            sha.update(f"{path.name} {len(raw)}:".encode() + raw)
    return sha.hexdigest()


def _kept(file: Path, shape: tuple[int, ...]) -> NDArray[np.int32] | None:
    """What was made before; None if there is none, or if it is damaged."""
    try:
        found: NDArray[np.int32] = np.load(file)
    except (OSError, ValueError, EOFError):
        return None
    return found if found.shape == shape and found.dtype == np.int32 else None


def _keep(file: Path, found: NDArray[np.int32]) -> None:
    """Whole or not at all; where there is no room, or no right to write, texts are tokenised again next time."""
    raw = io.BytesIO()
    np.save(raw, found)
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        files.write_whole(file, raw.getvalue())
        file.chmod(0o600)
    except OSError as error:
        log.warning("tokens cannot be kept in %s: %s", file.parent, error.strerror or error)


def told_apart(ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.int64]:
    """The targets of a language model: the tokens themselves, of which padding does not count."""
    return np.where(mask > 0, ids, IGNORED)
