"""Named models of other libraries: the small part of `fedfdp bench --what models`, and its file of rows."""

import json

import pytest

from fedfdp.bench.cases import StepCase
from fedfdp.bench.memory import peak
from fedfdp.bench.named import GROUPS, NAMED
from fedfdp.bench.named import rows as measuring
from fedfdp.bench.named.rows import NamedRow, errors, measured, read
from fedfdp.bench.tables import named_table
from fedfdp.core.errors import SettingError

FEW = ["transformers: GPT2, words", "transformers: ViT", "peft: BERT, DoRA", "torch: LSTM cell", "torch: ConvTranspose"]
MANY = ["BERT", "RoBERTa", "ALBERT", "DistilBERT", "BART", "GPT2", "T5", "Gemma", "ViT", "Swin", "BEiT"]


def _as_wanted(name: str) -> None:
    package = name.split(":")[0]
    pytest.importorskip("torch" if package == "torch" else "transformers")
    if package == "peft":
        pytest.importorskip("peft")
    named = NAMED[name]
    path, reason, error, rounding = errors(named, named.build())
    assert (path, reason) == ("rules", "")
    assert error <= 1e-5 + 4 * rounding


@pytest.mark.parametrize("name", FEW)
def test_a_named_model_is_fast_and_as_exact_as_single_precision(name):
    _as_wanted(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", MANY)
def test_what_people_fine_tune_most_is_fast_and_exact(name):
    _as_wanted(f"transformers: {name}")


def test_there_are_more_than_sixty():
    assert len(NAMED) >= 80
    assert {named.package for named in NAMED.values()} == {"torch", "transformers", "peft", "timm", "torchvision"}


def test_twenty_more_are_a_group_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(measuring, "measure", lambda named, *, seconds: NamedRow(named.package, named.name, 7, 16))
    found = [row.name for row in measured(["beyond"], seconds=1.0)]
    assert len(found) == 20
    assert not {f"{row.package}: {row.name}" for row in measured(seconds=1.0)} & set(GROUPS["beyond"])


@pytest.mark.slow
@pytest.mark.parametrize(("model", "bar"), [("distilbert-lora", 1.25), ("distilbert", 3.0)])
def test_the_memory_of_a_large_model(model, bar):
    pytest.importorskip("peft")
    assert peak(StepCase(model, 16), "ours") <= bar * peak(StepCase(model, 16), "plain")


def test_rows_are_kept_and_not_measured_again(tmp_path, monkeypatch):
    asked: list[str] = []

    def once(named, *, seconds):
        asked.append(named.name)
        return NamedRow(named.package, named.name, 7, named.batch, "fast", "", 1e-7, 2e-7, 1.5, None, "ValueError: no")

    monkeypatch.setattr(measuring, "measure", once)
    file = tmp_path / "rows.jsonl"
    first = list(measured(["torch: LSTM"], seconds=1.0, rows=file))
    both = list(measured(["torch: LSTM", "torch: GRU"], seconds=1.0, rows=file))
    assert asked == ["LSTM", "GRU"]
    assert both[:1] == first == read(file)[:1]
    assert json.loads(file.read_text().splitlines()[1])["name"] == "GRU"
    _, lines = named_table(both)
    assert lines[0] == ["LSTM", "torch", "7", "fast", "1e-07", "2e-07", "1.50", "fails"]


def test_a_model_is_measured_with_several_numbers_of_records(tmp_path, monkeypatch):
    def once(named, *, seconds):
        return NamedRow(named.package, named.name, 7, named.batch, "fast", "", 1e-7, 2e-7, 1 + named.batch / 100)

    monkeypatch.setattr(measuring, "measure", once)
    file = tmp_path / "rows.jsonl"
    list(measured(["torch: LSTM"], seconds=1.0, rows=file))
    both = list(measured(["torch: LSTM"], seconds=1.0, batches=[32, 16], rows=file))
    assert [row.batch for row in read(file)] == [16, 32]  # the first row serves the second call too
    head, lines = named_table(both)
    assert [dict(zip(head, line, strict=True))["records"] for line in lines] == ["32", "16"]
    assert [dict(zip(head, line, strict=True))["time"] for line in lines] == ["1.32", "1.16"]
    with pytest.raises(SettingError, match="batches = 0"):
        list(measured(["torch: LSTM"], seconds=1.0, batches=[0]))


def test_an_unknown_name_is_refused():
    with pytest.raises(SettingError, match="LSTM"):
        list(measured(["torch: LSTN"], seconds=1.0))


def test_a_model_that_cannot_be_built_is_a_row_that_says_so(monkeypatch):
    def none():
        raise ImportError("no such package")

    row = measuring.measure(measuring.Named("other", "None", none), seconds=1.0)
    assert row.failed == "ImportError: no such package"
    assert named_table([row])[1][0][3] == row.failed
