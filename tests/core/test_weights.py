"""Weights in one vector behave as a dict of tensors, and give the same bits."""

import copy
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedfdp.core import records
from fedfdp.core import weights as w

SHAPES = {"a": (3, 5), "b": (7,), "c": (), "d": (2, 1, 4)}


def plain(seed: int) -> w.Weights:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}


def same(left: w.Weights, right: w.Weights) -> bool:
    return list(left) == list(right) and all(torch.equal(left[name], right[name]) for name in left)


@given(st.floats(-1e3, 1e3, allow_nan=False))
def test_every_operation_gives_the_same_bits_in_either_form(scale):
    left, right = plain(0), plain(1)
    flat_left, flat_right = w.flat(left), w.flat(right)
    assert isinstance(flat_left, w.Flat)
    for found, expected in (
        (w.add(flat_left, flat_right, scale=scale), w.add(left, right, scale=scale)),
        (w.add(flat_left, right, scale=scale), w.add(left, right, scale=scale)),
        (w.subtract(flat_left, flat_right), w.subtract(left, right)),
        (w.multiply(flat_left, scale), w.multiply(left, scale)),
        (w.zeros_like(flat_left), w.zeros_like(left)),
        (w.clone(flat_left), left),
    ):
        assert same(found, expected)
    total, flat_total = w.clone(left), w.clone(flat_left)
    w.add_(total, right, scale=scale)
    w.add_(flat_total, flat_right, scale=scale)
    assert same(flat_total, total)
    assert w.size(flat_left) == 3 * 5 + 7 + 1 + 8
    assert w.squared_norm(flat_left) == w.squared_norm(left)


def test_it_reads_as_a_dict_before_anything_was_cut():
    expected = plain(0)

    def fresh() -> w.Weights:
        return w.flat(expected)

    assert same(dict(fresh()), expected)
    assert same({**fresh()}, expected)
    assert same(fresh().copy(), expected)
    assert same(fresh() | {}, expected)
    assert same(copy.deepcopy(fresh()), expected)
    assert same(pickle.loads(pickle.dumps(fresh())), expected)
    assert len(fresh()) == 4
    assert "b" in fresh()
    assert "e" not in fresh()
    assert list(fresh().keys()) == list(expected)
    assert torch.equal(fresh()["d"], expected["d"])
    assert fresh().get("e") is None
    with pytest.raises(KeyError):
        fresh()["e"]


def test_no_name_can_be_given_another_tensor():
    weights = w.flat(plain(0))
    with pytest.raises(TypeError, match="one vector"):
        weights["a"] = torch.zeros(3, 5)
    with pytest.raises(TypeError, match="one vector"):
        weights.update(plain(1))


def test_weights_of_several_types_stay_apart():
    mixed = {"a": torch.zeros(2), "b": torch.zeros(2, dtype=torch.float64)}
    copied = w.flat(mixed)
    assert not isinstance(copied, w.Flat)
    assert copied["b"].dtype == torch.float64
    assert copied["a"] is not mixed["a"]


def test_other_names_or_another_order_are_added_by_name():
    left = w.flat({"a": torch.tensor([1.0]), "b": torch.tensor([10.0])})
    right = w.flat({"b": torch.tensor([20.0]), "a": torch.tensor([2.0])})
    assert same(w.add(left, right), {"a": torch.tensor([3.0]), "b": torch.tensor([30.0])})


def test_a_record_keeps_the_bits_of_either_form():
    from fedfdp.algorithms.base import Broadcast

    for weights in (plain(2), w.flat(plain(2))):
        again = records.from_bytes(Broadcast, records.to_bytes(Broadcast(3, weights)))
        assert same(again.weights, weights)
        assert records.digest(again) == records.digest(Broadcast(3, weights))


def test_a_row_of_a_matrix_is_copied_without_its_neighbours():
    row = w.Flat(torch.arange(12.0).view(3, 4)[1], (("a", (4,)),))
    for copied in (pickle.loads(pickle.dumps(row)), copy.deepcopy(row)):
        assert copied.vector.tolist() == [4.0, 5.0, 6.0, 7.0]
        assert copied.vector.untyped_storage().nbytes() == 16


def test_in_place_only_where_no_two_names_can_share_memory():
    one = torch.ones(3)
    shared = {"a": one, "b": one, "c": torch.ones(()).expand(3)}
    assert {name: tensor.tolist() for name, tensor in w.multiply_(shared, -2.0).items()} == dict.fromkeys(
        "abc", [-2.0] * 3
    )
    vector = w.flat(plain(0))
    kept = w.clone(vector)
    assert w.multiply_(vector, -2.0) is vector
    assert same(vector, w.multiply(kept, -2.0))
