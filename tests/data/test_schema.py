import pytest

from fedfdp.data.columns import plainest


@pytest.mark.parametrize(
    ("written", "meant"),
    [("1.0", "1"), ("-3.", "-3"), ("007.00", "7"), ("True", "true"), ("1.5", "1.5"), ("1", "1"), ("１.0", "１.0")],
)
def test_whole_numbers_and_truth_values_as_a_table_tool_writes_them(written, meant):
    assert plainest(written) == meant


def test_a_cell_of_endless_digits_is_a_category_like_any_other():
    assert plainest("1" * 5000 + ".0") == "1" * 5000 + ".0"
