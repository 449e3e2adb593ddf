"""How many clients are worse off than alone, from made-up runs."""

import pytest

from fedfdp.experiments.render import blocks
from fedfdp.experiments.results import Cell, Found, Results
from fedfdp.experiments.scales import SCALES
from fedfdp.experiments.specs import experiments

FACTS = {"config": "c", "rounds": 9, "epsilon": 3.5, "lr": 1.0, "tuned_on": "mnist", "accuracy": 0.8, "psi": 0.1}
FACTS |= {"psi_train": 0.1, "psi_local": 0.1, "worst_accuracy": 0.5, "seconds": 1.0}


def results(**by_method):
    experiment = experiments()["fair"]
    column = experiment.columns[0]
    rows = [row for row in experiment.rows if row.key in by_method]
    cells = []
    for row in rows:
        runs = [Found(seed=seed, by_client=found, **FACTS) for seed, found in enumerate(by_method[row.key])]
        cells.append(Cell(row, column, tuple(runs)))
    return Results(experiment, SCALES["small"], (0, 1), tuple(cells))


def test_clients_are_compared_with_themselves_of_the_same_seed():
    # seed 0: the second is worse off; seed 1: the first and the third. A client without test records counts for nothing
    found = results(fedavg=[(0.9, 0.6, None), (0.5, 0.8, 0.7)], local=[(0.8, 0.7, None), (0.6, 0.8, 0.9)])
    average, alone = found.cells
    assert found.worse_off(average).mean == pytest.approx(1.5)
    assert found.worse_off(average).spread == pytest.approx(0.5**0.5)
    assert found.worse_off(alone) is None
    (block,) = blocks(found)
    assert block.headers[-1] == "worse off than alone"
    assert [row[-1] for row in block.rows] == ["1.5 ± 0.7", "–"]


def test_without_a_run_alone_there_is_no_such_column():
    found = results(fedavg=[(0.9, 0.6), (0.5, 0.8)])
    assert found.worse_off(found.cells[0]) is None
    assert "worse off than alone" not in blocks(found)[0].headers
