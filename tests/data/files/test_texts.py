"""Texts in folders, one folder per class; and tokens that are kept."""

import os
from pathlib import Path

import numpy as np
import pytest

from fedfdp.core.errors import DataError, SettingError
from fedfdp.data.files import words
from fedfdp.data.files.describe import describe
from fedfdp.data.files.read import read_inputs, read_records
from fedfdp.data.schema import Facts

transformers = pytest.importorskip("transformers")
WORDS = ["[PAD]", "[UNK]", "bad", "good", "day", "very"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> str:
    from tokenizers import Tokenizer, models, pre_tokenizers

    splitter = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, "[UNK]"))
    splitter.pre_tokenizer = pre_tokenizers.Whitespace()
    place = tmp_path_factory.mktemp("tokenizer")
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=splitter, pad_token="[PAD]", unk_token="[UNK]")
    fast.save_pretrained(place)
    return str(place)


def facts_of(tokenizer: str, length: int = 3, **more: object) -> Facts:
    columns = {"text": {"tokenizer": tokenizer, "length": length}}
    return Facts(**{"classes": ("no", "yes"), "columns": columns, **more})  # type: ignore[arg-type]


def written(folder: Path, texts: dict[str, str]) -> Path:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


NOTES = {"north/no/1.txt": "bad day", "north/yes/1.txt": "very good day day", "south/yes/x.txt": "good"}


def test_a_folder_for_each_class(tokenizer, tmp_path):
    found = read_records(facts_of(tokenizer), written(tmp_path, NOTES))
    assert found.holders == ("north", "south")
    assert found.owner.tolist() == [0, 0, 1]
    assert found.y.tolist() == [0, 1, 1]
    ids, mask = found.x.parts
    assert ids.tolist() == [[2, 4, 0], [5, 3, 4], [3, 0, 0]]
    assert mask.tolist() == [[1, 1, 0], [1, 1, 1], [1, 0, 0]]
    assert found.x.names == ("input_ids", "attention_mask")
    one = read_records(facts_of(tokenizer), tmp_path / "north")  # no holders: the folders are classes
    assert (one.holders, one.y.tolist()) == (None, [0, 1])
    assert read_inputs(facts_of(tokenizer), tmp_path / "north" / "yes").parts[0].tolist() == [[5, 3, 4]]
    assert describe(tmp_path).classes == ("no", "yes")


def test_words_of_a_language_need_no_classes(tokenizer, tmp_path):
    written(tmp_path, {"north/1.txt": "bad day", "south/deeper/2.txt": "good"})
    found = read_records(facts_of(tokenizer, classes=None, task="language"), tmp_path)
    assert (found.holders, found.classes) == (("north", "south"), len(WORDS))
    assert found.y.tolist() == [[2, 4, -100], [3, -100, -100]]


@pytest.mark.parametrize(
    ("changed", "settings", "error", "says"),
    [
        ({"north/no/1.txt": " \n"}, {}, DataError, r"north/no/1\.txt: an empty text"),
        ({"north/other/1.txt": "bad"}, {}, DataError, "a folder that is no class"),
        ({}, {"classes": None}, SettingError, r"data\.classes = None: text folders are named by class"),
        ({}, {"holder": "clinic"}, SettingError, r"data\.holder = 'clinic': north is texts, which has no use"),
        ({}, {"task": "tokens"}, SettingError, r"data\.task = 'tokens': north is texts"),
        ({}, {"unit": "person"}, SettingError, "texts do not say of whom they are"),
    ],
)
def test_what_is_wrong_is_one_line(tokenizer, tmp_path, changed, settings, error, says):
    with pytest.raises(error, match=says):
        read_records(facts_of(tokenizer, **settings), written(tmp_path, {**NOTES, **changed}))


def test_a_text_that_is_not_utf8_and_a_second_column(tokenizer, tmp_path):
    (written(tmp_path, NOTES) / "south/yes/x.txt").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(DataError, match=r"x\.txt: text that is not UTF-8"):
        read_records(facts_of(tokenizer), tmp_path)
    columns = {"text": {"tokenizer": tokenizer, "length": 3}, "age": [0, 9]}
    with pytest.raises(SettingError, match=r"data\.columns\.age = .*texts, which have no columns"):
        read_records(facts_of(tokenizer, columns=columns), tmp_path)


def test_tokens_are_kept_by_content(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDFDP_DATA", str(tmp_path / "kept"))
    monkeypatch.setattr(words, "KEPT", 2)
    source = written(tmp_path / "north", {"no/1.txt": "bad day", "no/2.txt": "bad", "yes/1.txt": "good"})
    asked, real = list[str](), words.tokenizer_at
    monkeypatch.setattr(words, "tokenizer_at", lambda folder, setting: asked.append(folder) or real(folder, setting))
    first = read_records(facts_of(tokenizer), source)
    assert len(asked) == 2  # both folders
    (file,) = (tmp_path / "kept" / "tokens").iterdir()  # a single text is not kept
    assert file.stat().st_mode & 0o777 == 0o600
    again = read_records(facts_of(tokenizer), source)
    assert len(asked) == 3
    assert again.x.parts[0].tolist() == first.x.parts[0].tolist() == [[2, 4, 0], [2, 0, 0], [3, 0, 0]]
    read_records(facts_of(tokenizer, length=2), source)
    (source / "no" / "2.txt").write_text("very bad")
    read_records(facts_of(tokenizer), source)
    assert len(list(file.parent.iterdir())) == 3  # another length, another text
    read_inputs(facts_of(tokenizer, length=4), source / "no")
    assert len(list(file.parent.iterdir())) == 3  # what is predicted for is not kept
    file.write_bytes(file.read_bytes()[:50])  # damaged: made again
    (source / "no" / "2.txt").write_text("bad")
    assert read_records(facts_of(tokenizer), source).x.parts[0].tolist() == first.x.parts[0].tolist()
    assert np.load(file).shape == (2, 2, 3)


def test_another_tokenizer_has_other_tokens(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(words, "_identity", words._identity.__wrapped__)
    before = words._identity(tokenizer, "x")
    (Path(tokenizer) / "model.safetensors").write_bytes(b"weights")
    assert words._identity(tokenizer, "x") == before
    (Path(tokenizer) / "added_tokens.json").write_text("{}")
    assert words._identity(tokenizer, "x") != before
    os.remove(Path(tokenizer) / "added_tokens.json")


def test_without_room_they_are_not_kept(tokenizer, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(words, "KEPT", 1)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDFDP_DATA", str(tmp_path / "file"))
    found = read_records(facts_of(tokenizer), written(tmp_path / "notes", NOTES))
    assert len(found.y) == 3
    assert "tokens cannot be kept" in caplog.text
