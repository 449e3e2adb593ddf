"""What a round sends, against what the methods must send: d weights, or 2d."""

import pytest
import torch
from torch import nn

from fedfdp.algorithms import ALGORITHMS, FedAvg, Scaffold
from fedfdp.experiments.traffic import measure

D = 100 * 50 + 50


@pytest.fixture(scope="module")
def rows():
    torch.manual_seed(0)
    return {row.method: row for row in measure(nn.Linear(100, 50), input_shape=(100,), outputs=50)}


def test_every_method_has_a_row(rows):
    assert list(rows) == list(ALGORITHMS)
    assert {row.weights for row in rows.values()} == {D}


def test_scaffold_sends_two_models_each_way_and_all_others_one(rows):
    for name, row in rows.items():
        models = 2 if name == "scaffold" else 1
        for size in (row.down, row.up):
            assert models * 4 * D < size < models * 4 * D + 1024  # names, shapes and scalars take the rest
        assert (row.down_models, row.up_models) == (row.down / (4 * D), row.up / (4 * D))


def test_what_is_beside_the_model_is_a_few_numbers(rows):
    for name in ("fedprox", "feddyn"):
        assert (rows[name].down, rows[name].up) == (rows["fedavg"].down, rows["fedavg"].up)
    for name in ("qffl", "ali_dpfl", "fedfdp"):
        assert 0 < rows[name].up - rows["fedavg"].up < 200
    assert 0 < rows["ali_dpfl"].down - rows["fedavg"].down < 64  # τ


def test_chosen_methods_only():
    found = measure(nn.Linear(4, 3), input_shape=(4,), outputs=3, methods=[Scaffold(lr=1.0), FedAvg()])
    assert [row.method for row in found] == ["scaffold", "fedavg"]
