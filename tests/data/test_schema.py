import pytest

from fedfdp.core.errors import SettingError
from fedfdp.data.columns import plainest
from fedfdp.data.schema import Facts


@pytest.mark.parametrize(
    ("written", "meant"),
    [("1.0", "1"), ("-3.", "-3"), ("007.00", "7"), ("True", "true"), ("1.5", "1.5"), ("1", "1"), ("１.0", "１.0")],
)
def test_whole_numbers_and_truth_values_as_a_table_tool_writes_them(written, meant):
    assert plainest(written) == meant


def test_a_cell_of_endless_digits_is_a_category_like_any_other():
    assert plainest("1" * 5000 + ".0") == "1" * 5000 + ".0"


WORDS = {"note": {"tokenizer": "model", "length": 4}}
FEW = "list them, or give their number: 9 means 0 to 8"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"task": "regression", "classes": 2},
            "data.classes = 2: regression has no classes; leave them out; the label's range is data.target",
        ),
        (
            {"task": "classification", "target": (0.0, 1.0)},
            "data.target = (0.0, 1.0): classification has no range; leave it out; classes are data.classes",
        ),
        (
            {"task": "multi-label", "target": "private"},
            "data.target = 'private': multi-label has no range; leave it out; classes are data.classes",
        ),
        ({"task": "tokens"}, f"data.classes = None: tokens needs the classes of a place; {FEW}"),
        ({"task": "segmentation"}, f"data.classes = None: segmentation needs the classes of a place; {FEW}"),
        ({"task": "language"}, f"data.classes = None: language needs the classes of a place; {FEW}"),
        ({"task": "tokens", "columns": WORDS}, f"data.classes = None: tokens needs the classes of a place; {FEW}"),
    ],
)
def test_classes_or_a_range_are_given_as_the_task_needs_them(given, said):
    with pytest.raises(SettingError) as refused:
        Facts(**given)
    assert str(refused.value) == said


def test_the_words_of_a_language_model_are_those_of_its_tokenizer():
    assert Facts(task="language", columns=WORDS).classes is None
    assert Facts(task="multi-label").classes is None
    assert Facts(task="regression", target=(0.0, 1.0)).classes is None
