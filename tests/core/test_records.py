from dataclasses import dataclass
from typing import Generic, TypeVar

import pytest
import torch
from torch import Tensor

from fedfdp.core.errors import DataError
from fedfdp.core.records import digest, from_bytes, to_bytes


@dataclass(frozen=True)
class Inner:
    bound: float
    names: tuple[str, ...]


@dataclass(frozen=True)
class Record:
    round: int
    weights: dict[str, Tensor]
    losses: dict[str, float]
    inner: Inner
    maybe: float | None = None


def record() -> Record:
    weights = {"a/b.c": torch.arange(6.0).view(2, 3), "scalar": torch.tensor(2.5, dtype=torch.float64)}
    return Record(3, weights, {"x": 0.1}, Inner(1e-300, ("é", "b")))


def test_a_record_comes_back_bit_for_bit():
    before, after = record(), from_bytes(Record, to_bytes(record()))
    assert (after.round, after.losses, after.inner, after.maybe) == (3, {"x": 0.1}, Inner(1e-300, ("é", "b")), None)
    for name, tensor in before.weights.items():
        assert torch.equal(after.weights[name], tensor)
        assert after.weights[name].dtype == tensor.dtype


Content = TypeVar("Content")
Label = TypeVar("Label")


@dataclass(frozen=True)
class Box(Generic[Content]):
    content: Content
    number: int


@dataclass(frozen=True)
class Shelf(Generic[Label, Content]):
    label: Label
    boxes: tuple[Box[Content], ...]
    by_name: dict[str, Content]
    maybe: Content | None = None


def test_a_generic_record_comes_back_as_what_its_parameters_say():
    before = Shelf("top", (Box(Inner(1.0, ("a",)), 3),), {"x": Inner(2.0, ())})
    after = from_bytes(Shelf[str, Inner], to_bytes(before))
    assert after == before
    assert type(after.boxes[0].content) is Inner
    with pytest.raises(DataError, match="not a valid Shelf record: /label should be int, is 'top'"):
        from_bytes(Shelf[int, Inner], to_bytes(before))


def test_views_of_one_buffer_are_kept_apart():
    flat = torch.arange(6.0)
    record = Record(0, {"a": flat[:2], "b": flat[2:].view(2, 2)}, {}, Inner(0.0, ()))
    after = from_bytes(Record, to_bytes(record))
    assert after.weights["a"].tolist() == [0, 1]
    assert after.weights["b"].tolist() == [[2, 3], [4, 5]]


def test_one_tensor_under_two_names():
    one = torch.arange(3.0)
    after = from_bytes(Record, to_bytes(Record(0, {"a": one, "b": one, "c": one[:2]}, {}, Inner(0.0, ()))))
    assert [after.weights[name].tolist() for name in "abc"] == [[0, 1, 2], [0, 1, 2], [0, 1]]


@pytest.mark.parametrize("change", ["truncate", "garbage", "kind"])
def test_what_is_not_such_a_record_is_refused(change):
    data = to_bytes(record())
    data = {"truncate": data[:-5], "garbage": b"\x00" * 40, "kind": to_bytes(Inner(1.0, ()))}[change]
    with pytest.raises(DataError, match="not a valid Record record"):
        from_bytes(Record, data)


def test_a_wrong_type_is_refused():
    with pytest.raises(DataError, match="/round should be int, is 'three'"):
        from_bytes(Record, to_bytes(Record("three", {}, {}, Inner(0.0, ()))))


def test_the_digest_is_of_the_content_however_it_lies_in_memory():
    kernels = torch.randn(4, 32, 1, 1)
    assert digest(kernels) == digest(kernels.to(memory_format=torch.channels_last))
    assert digest(kernels) == digest(kernels.transpose(0, 1).contiguous().transpose(0, 1))


def test_the_digest_sees_every_bit():
    one, other = record(), record()
    assert digest(one) == digest(other)
    other.weights["a/b.c"][1, 2] = torch.nextafter(torch.tensor(5.0), torch.tensor(6.0))
    assert digest(one) != digest(other)
    assert digest(one) != digest(Record(4, one.weights, one.losses, one.inner))
