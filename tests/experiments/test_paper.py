"""The paper's numbers, checked against a second reading of its tables."""

import pytest

from fedfdp.experiments.methods import plain_methods, private_methods
from fedfdp.experiments.paper import COMMUNICATION, Printed, printed
from fedfdp.experiments.specs import experiments


@pytest.mark.parametrize(
    ("table", "rows", "columns"),
    [("table2", 6, 3), ("table3", 7, 3), ("table4", 6, 6), ("table5", 7, 6), ("table6", 7, 4), ("table7", 7, 4)],
)
def test_every_cell_is_there_and_has_a_place_in_our_table(table, rows, columns):
    cells, experiment = printed(table), experiments()[table]
    assert len(cells) == rows * columns
    assert {column for _, column in cells} == {column.label for column in experiment.columns}
    assert {row for row, _ in cells} == {row.key for row in experiment.rows} - {"fedfdp"}


@pytest.mark.parametrize(
    ("table", "row", "column", "expected"),
    [
        ("table2", "scaffold", "CIFAR10", Printed(62.21, 1.37, 9.9, 11.0)),
        ("table2", "fedfair", "FashionMNIST", Printed(87.70, 0.76, 0.26, 0.23)),
        ("table3", "fedprox", "MNIST", Printed(90.50, 3.95, 5.3e10, 7.3e9)),
        ("table3", "fedfdp-paper", "MNIST", Printed(95.13, 0.83, 2.3e10, 1.0e10)),
        ("table3", "qffl", "CIFAR10", Printed(48.46, 1.00, 4.7e9, 1.9e9)),
        ("table4", "fedair", "x", None),
        ("table4", "feddyn", "50 clients", Printed(62.52, None, 1.5, None)),
        ("table5", "ali-dpfl", "20 clients", Printed(38.35, None, 2.4e10, None)),
        ("table5", "fedfdp-paper", "MNIST Dir(0.1)", Printed(94.13, None, 2.3e10, None)),
        ("table6", "fedfdp-paper", "ε = 3", Printed(85.59, None, 9.5e7, None)),
        ("table7", "qffl", "90 %", Printed(4.12, None, 8.8e10, None)),
        ("table7", "fedavg", "95 %", Printed(4.89, None, 1.3e11, None)),
    ],
)
def test_printed_numbers(table, row, column, expected):
    assert printed(table).get((row, column)) == expected


def test_sums_of_whole_columns():
    """Added up by hand from the print: a slip in any line shows."""
    three, six = printed("table3"), printed("table6")
    assert sum(c.value for (_, col), c in three.items() if col == "MNIST") == pytest.approx(649.03)
    assert sum(c.value for (_, col), c in three.items() if col == "CIFAR10") == pytest.approx(364.66)
    assert sum(c.value for (_, col), c in six.items() if col == "ε = 1") == pytest.approx(431.56)
    assert sum(c.value for (_, col), c in printed("table7").items() if col == "80 %") == pytest.approx(18.46)


def test_rows_are_the_papers_methods_and_ours():
    assert list(private_methods())[:6] == ["fedavg", "scaffold", "fedprox", "feddyn", "ali-dpfl", "qffl"]
    assert set(private_methods()) - set(COMMUNICATION) == {"fedfdp"}
    assert set(plain_methods()) == {"fedavg", "scaffold", "fedprox", "feddyn", "qffl", "fedfair", "fedfdp"}
