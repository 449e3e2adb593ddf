"""The bound for records with several inputs: no input of a record reaches another record's part of the sum."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedfdp.core.errors import SettingError
from fedfdp.core.trees import Tree
from fedfdp.models.losses import cross_entropy
from fedfdp.privacy.clipping import clipped_sum, record_losses
from fedfdp.privacy.clipping.plan import path_of

CLIP = 0.1


class Both(nn.Module):
    """An image and a table, each through its own layers."""

    def __init__(self) -> None:
        super().__init__()
        self.image, self.table, self.last = nn.Conv2d(1, 2, 3), nn.Linear(3, 4), nn.Linear(2 * 4 + 4, 3)

    def forward(self, picture, row):
        return self.last(torch.cat([self.image(picture).tanh().flatten(1), self.table(row).tanh()], 1))


class Centred(Both):
    """Mixes records through the second input alone."""

    def forward(self, picture, row):
        return super().forward(picture, row - row.mean(0))


class Branching(Both):
    """Decides by a record's second input, which neither the rules nor torch.func can follow."""

    def forward(self, picture, row):
        return super().forward(picture if float(row.sum()) > 0 else -picture, row)


MODEL = Both()  # one for all examples: a model is examined once


def _records(count: int, seed: int = 0, *, names: bool) -> tuple[Tree, torch.Tensor]:
    chance = torch.Generator().manual_seed(seed)
    parts = [torch.randn(count, 1, 4, 4, generator=chance), torch.randn(count, 3, generator=chance)]
    return Tree(parts, ["picture", "row"] if names else None), torch.randint(0, 3, (count,), generator=chance)


def _by_hand(model: nn.Module, x: Tree, y: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(sum(p.numel() for p in model.parameters()))
    for i in range(len(x)):
        output = model(*[part[i : i + 1] for part in x.parts])
        grads = torch.autograd.grad(cross_entropy(output, y[i : i + 1])[0], list(model.parameters()))
        flat = torch.cat([grad.flatten() for grad in grads])
        total += flat * min(1.0, CLIP / float(flat.norm()))
    return total


@pytest.mark.parametrize("names", [True, False])
@pytest.mark.parametrize(("kind", "how"), [(Both, "rules"), (Branching, "loop")])
def test_sums_are_those_of_each_record(kind, how, names):
    torch.manual_seed(0)
    model, (x, y) = kind(), _records(7, names=names)
    found = clipped_sum(model, cross_entropy, x, y, clip=CLIP, chunk=3)
    assert path_of(model)[0] == how
    assert torch.allclose(found.flat, _by_hand(model, x, y), atol=1e-6)
    expected = torch.cat([cross_entropy(model(*[p[i : i + 1] for p in x.parts]), y[i : i + 1]) for i in range(7)])
    assert torch.allclose(record_losses(model, cross_entropy, x, y), expected, atol=1e-6)
    grouped = clipped_sum(model, cross_entropy, x, y, clip=CLIP, sizes=[2, 0, 5])
    assert torch.allclose(grouped.flat[0], _by_hand(model, x[:2], y[:2]), atol=1e-6)
    assert grouped.flat.shape[0] == 3
    assert torch.allclose(clipped_sum(model, cross_entropy, x[:0], y[:0], clip=CLIP).flat, torch.zeros(()))


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(["picture", "row", "both"]),
    st.sampled_from([1.0, 1e4, float("inf"), float("nan")]),
    st.integers(0, 5),
    st.booleans(),
)
def test_one_record_moves_the_sum_by_no_more_than_the_bound(which, size, record, names):
    """Whatever one record's inputs become, the sum moves by at most 2·C, and the others' coefficients do not."""
    model, (x, y) = MODEL, _records(6, names=names)
    before = clipped_sum(model, cross_entropy, x, y, clip=CLIP)
    other = x.clone()
    for part, name in zip(other.parts, ("picture", "row"), strict=True):
        if which in (name, "both"):
            part[record] *= size
    after = clipped_sum(model, cross_entropy, other, y, clip=CLIP)
    assert float((after.flat - before.flat).norm()) <= 2 * CLIP * (1 + 1e-5)
    rest = [i for i in range(6) if i != record]
    assert torch.allclose(after.coefficients[rest], before.coefficients[rest], rtol=1e-4)
    without = torch.tensor(rest)
    removed = clipped_sum(model, cross_entropy, x[without], y[without], clip=CLIP)
    assert float((removed.flat - before.flat).norm()) <= CLIP * (1 + 1e-5)


@pytest.mark.parametrize("names", [True, False])
def test_a_model_that_mixes_records_in_one_input_is_not_taken_by_the_rules(names):
    """One by one, a record's mean is itself, so nothing of the others is left."""
    torch.manual_seed(2)
    model, (x, y) = Centred(), _records(5, names=names)
    found = clipped_sum(model, cross_entropy, x, y, clip=CLIP)
    assert path_of(model)[0] != "rules"
    assert torch.allclose(found.flat, _by_hand(model, x, y), atol=1e-6)


def test_a_loss_for_the_whole_batch_is_refused():
    model, (x, y) = Both(), _records(4, names=True)
    with pytest.raises(SettingError, match="one loss per record"):
        clipped_sum(model, nn.CrossEntropyLoss(), x, y, clip=CLIP)
