"""Records with several inputs, taken apart and put together."""

import pytest
import torch

from fedfdp.core.errors import DataError
from fedfdp.core.trees import Leaf, Tree, apart, arguments_of, blank, form_of, grown, joined, made, parts_of


def test_indexing_takes_the_same_records_of_each():
    a, b = torch.arange(12.0).view(4, 3), torch.arange(4)
    tree = Tree([a, b], ["a", "b"])
    part = tree[torch.tensor([3, 1])]
    assert torch.equal(part.parts[0], a[[3, 1]])
    assert part.parts[1].tolist() == [3, 1]
    assert (len(tree), tree.shape, tree.names) == (4, (4,), ("a", "b"))
    assert joined([part, part]).parts[1].tolist() == [3, 1, 3, 1]
    given, named = arguments_of(tree)
    assert given == ()
    assert list(named) == ["a", "b"]
    assert arguments_of(Tree([a, b]))[1] == {}


def test_a_form_makes_records_of_its_kind():
    form = (Leaf("ids", (3,), "int64"), Leaf("mask", (3,), "bool"))
    assert form_of(blank(form, 2)) == form
    assert bool(parts_of(blank(form, 2))[1].all())  # a mask that hides everything leaves nothing to compute
    plain = (Leaf("", (2, 2), "float32"),)
    assert form_of(torch.zeros(5, 2, 2)) == plain
    assert isinstance(made(plain, 3, lambda shape, dtype: torch.zeros(shape, dtype=dtype)), torch.Tensor)


def test_inputs_that_share_memory_are_taken_apart():
    pool = torch.arange(10.0)
    tree = apart(Tree([pool[:-1], pool[1:]]))
    tree.parts[0].zero_()
    assert tree.parts[1].tolist() == list(range(1, 10))


def test_numbered_inputs_come_in_the_order_of_their_numbers():
    a, b, c = (torch.full((2,), value) for value in (0.0, 1.0, 2.0))
    tree = grown([("10", c), ("2", b), ("0", a)])
    assert (tree.names, [part.tolist() for part in tree.parts]) == (None, [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])
    assert grown([("b", b), ("a", a)]).names == ("b", "a")


def test_inputs_of_different_length_are_refused():
    with pytest.raises(DataError, match="inputs of different length: 3 in 'a', 2 in 'b'"):
        grown([("a", torch.zeros(3)), ("b", torch.zeros(2))])
