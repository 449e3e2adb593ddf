"""What is said of a model before it is trained, against counts by hand and gradients by autograd."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from fedfdp.bench.cost import step_cost
from fedfdp.models.inspection import inspected, listed
from fedfdp.privacy.clipping import clipped_sum
from frozen_net import FrozenNet

inspected = partial(inspected, measure=step_cost)


def test_the_built_in_models_and_their_sizes_by_hand():
    rows = {row.name: row for row in listed()}
    # 5·5·32 + 32, 5·5·32·64 + 64, 4·4·64·512 + 512, 512·10 + 10
    assert rows["paper-cnn"].on_images == 832 + 51_264 + 524_800 + 5_130
    # 8·8·16 + 16, 4·4·16·32 + 32, (4·4·32)·32 + 32, 32·10 + 10
    assert rows["small-cnn"].on_images == 1_040 + 8_224 + 16_416 + 330
    assert rows["mlp"].on_images == 784 * 128 + 128 + 128 * 10 + 10
    assert rows["linear"].on_images == 784 * 10 + 10
    assert (rows["linear"].on_table, rows["mlp"].on_table) == (62, 30 * 128 + 128 + 128 * 2 + 2)
    assert rows["paper-cnn"].on_table is rows["small-cnn"].on_table is None
    assert all(row.purpose for row in rows.values())


class Start(nn.Module):
    """Writes what it learns into the first places of the data."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Parameter(torch.rand(2))

    def forward(self, x: Tensor) -> Tensor:
        x = x.clone()
        x[:, :2] = self.own
        return x


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.start, self.head = nn.LSTM(8, 16, batch_first=True), Start(), nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.start(self.lstm(x)[0][:, -1]))
        return out


def test_every_layer_without_a_fast_rule_is_named():
    found = inspected(Recurrent(), input_shape=(5, 8), outputs=2)
    layers = {layer.name: layer for layer in found.layers}
    assert {layer.rule for layer in found.layers} == {"fallback"}
    assert layers["start"].advice == "no fast rule for __setitem__; works as it is, record by record: slower"
    assert layers["head"].advice == "fast by itself, but not with start in the model"
    assert found.possible
    assert found.trained == 4 * 16 * (8 + 16 + 2) + 2 + 34
    assert found.cost.ratio > 1


class Centred(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(x - x.mean(0))
        return out


def test_a_forward_that_mixes_records_is_said():
    (layer,) = inspected(Centred(), input_shape=(8,), outputs=2).layers
    assert layer.rule == "fallback"
    assert "depends on the other records" in layer.advice
    assert layer.advice.endswith("keep records apart in forward")


def refused() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 3),
        nn.BatchNorm2d(6),
        nn.InstanceNorm2d(6, track_running_stats=True),
        nn.Flatten(),
        nn.Linear(6 * 36, 2),
    )


def test_what_cannot_be_private_is_named_with_what_to_put_there():
    model = refused()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found = inspected(model, input_shape=(1, 8, 8), outputs=2)
    assert not found.possible
    rules = [(layer.name, layer.rule) for layer in found.layers]
    assert rules == [("0", "fast"), ("1", "refused"), ("2", "refused"), ("4", "fast")]
    assert found.layers[1].advice.endswith("replace it by nn.GroupNorm(2, 6)")
    assert found.layers[2].advice.endswith("set track_running_stats=False")
    assert isinstance(model[1], nn.BatchNorm2d)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name  # running statistics too
    # As advised, it is private: every record's gradient has norm 1 at most.
    model[1], model[2] = nn.GroupNorm(2, 6), nn.InstanceNorm2d(6)
    x, y = torch.randn(4, 1, 8, 8), torch.tensor([0, 1, 0, 1])
    loss = nn.CrossEntropyLoss(reduction="none")
    total = clipped_sum(model, loss, x, y, clip=1.0)
    assert bool((total.coefficients * total.norms <= 1 + 1e-6).all())


def test_a_frozen_backbone_is_judged_as_it_is_trained():
    found = inspected(FrozenNet(freeze=True), input_shape=(64,), outputs=10)
    assert found.possible
    assert [(layer.name, layer.rule) for layer in found.layers] == [
        ("backbone.1", "frozen"),
        ("backbone.2", "frozen"),
        ("head", "fast"),
    ]
    assert (found.trained, found.frozen) == (130, 64 * 12 + 12 + 24)


@pytest.mark.parametrize("limit", [None, 1.0])
def test_token_numbers(limit):
    model = nn.Sequential(nn.Embedding(50, 4, max_norm=limit), nn.Flatten(), nn.Linear(24, 3))
    found = inspected(model, input_shape=(6,), outputs=3, tokens=50)
    assert found.possible == (limit is None)
    assert found.trained == 200 + 75
