import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

from fedfdp.core.errors import SettingError
from fedfdp.fairness.coefficients import FORMS, fair_clip
from fedfdp.privacy.clipping import clipped_sum

anything = st.floats(allow_nan=True, allow_infinity=True, width=32)


@pytest.mark.parametrize(
    ("form", "loss", "norm", "wanted"),
    [
        # C = 2, λ = 0.5, F = 1, κ = 4, γ = 1
        ("paper", 3.0, 0.5, 2.0),  # s = 2, C/‖g‖ = 4
        ("paper", 3.0, 4.0, 0.5),
        ("paper", -5.0, 0.5, -2.0),  # s = −2: its sign kept …
        ("paper", -5.0, 4.0, -0.5),  # … its size clipped
        ("bounded", 3.0, 0.5, 0.5),  # 1 · 2/4
        ("bounded", 3.0, 4.0, 0.25),
        ("bounded", -5.0, 4.0, 0.0),
        ("bounded", 100.0, 4.0, 0.5),  # s capped at κ
        ("automatic", 3.0, 3.0, 0.25),  # 2/(3 + 1) · 2/4
        ("automatic", 100.0, 0.0, 2.0),
    ],
)
def test_forms_by_hand(form, loss, norm, wanted):
    coefficient = fair_clip(form, clip=2.0, lam=0.5, reference=1.0, kappa=4.0, gamma=1.0)
    assert float(coefficient(torch.tensor(loss), torch.tensor(norm))) == pytest.approx(wanted)


def test_without_fairness_every_form_but_automatic_is_dpsgd():
    loss, norm = torch.tensor([0.1, 5.0, 2.0]), torch.tensor([0.5, 8.0, 2.0])
    for form in ("paper", "bounded"):
        coefficient = fair_clip(form, clip=2.0, lam=0.0, reference=1.0, kappa=4.0, gamma=1.0)
        assert coefficient(loss, norm).tolist() == [1.0, 0.25, 1.0]


@pytest.mark.parametrize("form", FORMS)
def test_a_form_reads_one_record_at_a_time(form):
    """Forms are evaluated for all records at once: with other records beside it, a record's coefficient is the same."""
    coefficient = fair_clip(form, clip=0.5, lam=0.7, reference=1.2, kappa=2.0, gamma=0.01)
    loss, norm = 3 * torch.rand(2, 50, generator=torch.Generator().manual_seed(0))
    alone = torch.stack([coefficient(loss[i], norm[i]) for i in range(50)])
    assert torch.equal(coefficient(loss, norm), alone)
    assert torch.equal(coefficient(loss[:7], norm[:7]), alone[:7])


def test_an_unknown_form_is_named():
    with pytest.raises(SettingError, match=r"algorithm.coefficients = 'papr': did you mean 'paper'\?"):
        fair_clip("papr", clip=1.0, lam=0.0, reference=0.0, kappa=1.0, gamma=0.0)


class Scripted(nn.Module):
    """A model whose loss and gradient on a record are what the record says."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(self.linear.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


@settings(max_examples=40, deadline=None)
@given(
    form=st.sampled_from(list(FORMS)),
    losses=st.lists(anything, min_size=1, max_size=4),
    slopes=st.lists(anything, min_size=4, max_size=4),
    lam=st.floats(0, 1e6),
    kappa=st.floats(1, 1e6),
    clip=st.floats(1e-6, 1e6),
    reference=st.floats(-1e6, 1e6),
)
@example("paper", [math.inf], [1.0] * 4, 1.0, 2.0, 0.1, 0.0)
@example("paper", [0.0], [1e30] * 4, 1e6, 2.0, 0.1, 1e6)
def test_no_record_moves_the_sum_by_more_than_the_bound(form, losses, slopes, lam, kappa, clip, reference):
    """Whatever losses, gradients and settings are: the sum is finite, and one record less moves it by C at most."""
    count = len(losses)
    x, target = torch.tensor(slopes[:count]).view(-1, 1), torch.tensor(losses)
    coefficient = fair_clip(form, clip=clip, lam=lam, reference=reference, kappa=kappa, gamma=0.01)

    def loss_fn(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return output.squeeze(1) + y

    model = Scripted()
    whole = clipped_sum(model, loss_fn, x, target, clip=clip, coefficient=coefficient).grads["linear.weight"]
    assert torch.isfinite(whole).all()
    for j in range(count):
        rest = torch.arange(count) != j
        part = clipped_sum(model, loss_fn, x[rest], target[rest], clip=clip, coefficient=coefficient)
        moved = float((whole.double() - part.grads["linear.weight"].double()).abs().sum())
        assert moved <= clip * (1 + 1e-5)
