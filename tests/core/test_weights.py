"""Weights behave as a mapping of tensors, and arithmetic on their vectors gives the bits of tensor by tensor."""

import copy
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from fedfdp.core import records
from fedfdp.core import weights as w
from fedfdp.core.weights import Weights

SHAPES = {"a": (3, 5), "b": (7,), "c": (), "d": (2, 1, 4), "e": (0, 3)}


def plain(seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}


def mixed(seed: int) -> dict[str, Tensor]:
    return {name: tensor.double() if name in "bd" else tensor for name, tensor in plain(seed).items()}


def same(found: Weights, expected: dict[str, Tensor]) -> bool:
    assert isinstance(found, Weights)
    assert all(found[name].dtype == tensor.dtype for name, tensor in expected.items())
    return list(found) == list(expected) and all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("make", [plain, mixed])
@given(scale=st.floats(-1e3, 1e3, allow_nan=False))
def test_every_operation_gives_the_bits_of_tensor_by_tensor(make, scale):
    left, right = make(0), make(1)
    for one, other in ((left, right), (Weights.of(left), Weights.of(right)), (Weights.of(left), right)):
        added = {name: torch.add(left[name], right[name], alpha=scale) for name in left}
        assert same(w.add(one, other, scale=scale), added)
        assert same(w.subtract(one, other), {name: left[name] - right[name] for name in left})
        assert same(w.multiply(one, scale), {name: left[name] * scale for name in left})
        assert same(w.zeros_like(one), {name: torch.zeros_like(left[name]) for name in left})
        assert same(w.clone(one), left)
        mean = {name: torch.lerp(left[name], right[name], 0.3) for name in left}
        assert same(w.each(lambda a, b: torch.lerp(a, b, 0.3), one, other), mean)
        total = w.clone(one)
        w.add_(total, other, scale=scale)
        assert same(total, added)
        assert w.size(one) == 3 * 5 + 7 + 1 + 8
        norms = [torch.linalg.vector_norm(tensor, dtype=torch.float64) ** 2 for tensor in left.values()]
        assert w.squared_norm(one) == float(sum(norms))


def test_one_vector_for_each_dtype_with_the_names_in_their_order():
    assert [vector.numel() for vector in Weights.of(plain(0)).vectors] == [31]
    weights = Weights.of(mixed(0))
    assert [(vector.dtype, vector.numel()) for vector in weights.vectors] == [(torch.float32, 16), (torch.float64, 15)]
    assert list(weights) == list(SHAPES)
    assert {name: tuple(tensor.shape) for name, tensor in weights.items()} == SHAPES


def test_it_reads_as_a_mapping():
    expected, weights = plain(0), Weights.of(plain(0))
    assert same(weights, dict(weights))
    assert {**weights}.keys() == weights.keys() == expected.keys()
    assert len(weights) == 5
    assert "b" in weights
    assert "x" not in weights
    assert weights.get("x") is None
    with pytest.raises(KeyError, match="x"):
        weights["x"]
    model = nn.Linear(2, 3)
    model.load_state_dict(Weights.of({"weight": torch.ones(3, 2), "bias": torch.zeros(3)}))
    assert model.weight.tolist() == [[1, 1]] * 3


def test_names_are_fixed_and_numbers_are_not():
    weights = Weights.of(plain(0))
    with pytest.raises(TypeError, match="item assignment"):
        weights["a"] = torch.zeros(3, 5)
    weights["a"][1, 2] = 7.0
    assert weights.vectors[0][7] == 7.0


def test_it_is_a_copy_of_what_it_was_made_of():
    for given_ in ({"a": torch.ones(3)}, {"a": nn.Parameter(torch.ones(3))}, {"a": torch.ones(()).expand(3)}):
        weights = Weights.of(given_)
        w.add_(weights, weights)
        assert given_["a"].tolist() == [1, 1, 1]
        assert not weights["a"].requires_grad
    assert Weights.of(weights) is weights


def test_equal_where_every_name_dtype_shape_and_number_is():
    weights = Weights.of(plain(0))
    assert weights == Weights.of(plain(0))
    assert weights == plain(0)
    assert plain(0) == weights
    assert weights == Weights.of(dict(reversed(plain(0).items())))
    assert weights != Weights.of(plain(1))
    assert weights != mixed(0)
    assert weights != {**plain(0), "b": torch.zeros(1, 7)}
    assert weights != {**plain(0), "b": 3}
    assert weights != {name: tensor for name, tensor in plain(0).items() if name != "b"}
    assert weights != 3
    assert Weights() == Weights.of({}) == {}


def test_it_is_shown_by_names_types_and_shapes():
    weights = Weights.of({"w": torch.ones(3, 2), "b": torch.ones(3, dtype=torch.float64)})
    assert repr(weights) == "Weights(w: torch.float32 (3, 2), b: torch.float64 (3,))"


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda weights: pickle.loads(pickle.dumps(weights))])
@pytest.mark.parametrize("make", [plain, mixed])
def test_a_copy_shares_nothing(copied, make):
    weights = Weights.of(make(0))
    again = copied(weights)
    w.add_(again, again)
    assert same(weights, make(0))
    assert same(again, {name: 2 * tensor for name, tensor in make(0).items()})


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda weights: pickle.loads(pickle.dumps(weights))])
def test_a_row_of_a_matrix_is_copied_without_its_neighbours(copied):
    row = Weights((("a", (4,)),), (torch.arange(12.0).view(3, 4)[1],))
    assert copied(row)["a"].tolist() == [4.0, 5.0, 6.0, 7.0]
    assert copied(row).vectors[0].untyped_storage().nbytes() == 16


def test_empty_weights():
    for nothing in (Weights(), Weights.of({})):
        assert not nothing
        assert list(nothing.items()) == []
        assert w.add(nothing, nothing) == w.multiply_(nothing, 2.0) == w.zeros_like(nothing) == {}
        assert (w.size(nothing), w.squared_norm(nothing), w.all_finite(nothing)) == (0, 0.0, True)
        assert pickle.loads(pickle.dumps(nothing)) == {}
        w.add_(nothing, plain(0))
        assert nothing == {}


def test_other_names_or_another_order_are_added_by_name():
    left = {"a": torch.tensor([1.0]), "b": torch.tensor([10.0])}
    right = {"b": torch.tensor([20.0]), "a": torch.tensor([2.0]), "more": torch.tensor([5.0])}
    for one, other in ((left, right), (Weights.of(left), Weights.of(right))):
        assert same(w.add(one, other), {"a": torch.tensor([3.0]), "b": torch.tensor([30.0])})
        with pytest.raises(KeyError, match="more"):
            w.add(other, one)


def test_shapes_must_fit_and_single_numbers_are_broadcast():
    left = Weights.of({"a": torch.ones(2, 3)})
    with pytest.raises(RuntimeError, match="expand"):
        w.add(left, {"a": torch.ones(3, 2)})
    assert same(w.add(left, {"a": torch.tensor(2.0)}), {"a": torch.full((2, 3), 3.0)})


def test_each_tensor_in_the_dtype_of_its_namesake():
    sums = Weights((("a", (2,)), ("b", (1,))), (torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64),))
    assert sums.typed_as(sums) is sums
    for like in ({"b": torch.zeros(1).double(), "a": torch.zeros(2)}, {"a": torch.zeros(2), "b": torch.zeros(1)}):
        for given_ in (like, Weights.of(like)):
            expected = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([3.0], dtype=like["b"].dtype)}
            assert same(sums.typed_as(given_), expected)


def test_a_record_keeps_the_bits_and_its_digest_is_that_of_a_dict():
    from fedfdp.algorithms.base import Broadcast

    for make in (plain, mixed):
        weights = Weights.of(make(2))
        assert records.to_bytes(Broadcast(3, weights)) == records.to_bytes(Broadcast(3, make(2)))
        assert records.digest(Broadcast(3, weights)) == records.digest(Broadcast(3, make(2)))
        again = records.from_bytes(Broadcast, records.to_bytes(Broadcast(3, weights)))
        assert again == Broadcast(3, weights)
        assert isinstance(again.weights, Weights)


def test_only_weights_are_changed_in_place():
    one = torch.ones(3)
    shared = {"a": one, "b": one, "c": torch.ones(()).expand(3)}  # memory that several names have in common
    assert same(w.multiply_(shared, -2.0), dict.fromkeys("abc", torch.full((3,), -2.0)))
    assert one.tolist() == [1, 1, 1]
    with pytest.raises(TypeError, match=r"Weights\.of"):
        w.add_(shared, shared)
    weights = Weights.of(plain(0))
    assert w.multiply_(weights, -2.0) is weights
    assert same(weights, {name: tensor * -2.0 for name, tensor in plain(0).items()})


def test_one_number_that_is_not_finite_is_seen():
    weights = Weights.of(mixed(0))
    assert w.all_finite(weights)
    weights["d"][1, 0, 3] = torch.inf
    assert not w.all_finite(weights)
