"""Clients whose records differ in shape and classes: one body, own inputs and heads."""

import pytest
import torch
from torch import nn

import fedfdp
from fedfdp.core.errors import DataError, SettingError
from fedfdp.data import Federation
from fedfdp.data.domains import joined


class Net(nn.Module):
    def __init__(self, features: int, classes: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.body, self.head = nn.Linear(features, 6), nn.Linear(6, 6), nn.Linear(6, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.body(torch.tanh(self.stem(x.flatten(1))))))


def holder(name: str, records: int, features: int, classes: int, seed: int) -> Federation:
    chance = torch.Generator().manual_seed(seed)
    x = torch.randn(records, features, generator=chance)
    return Federation.from_clients({name: (x, (x[:, 0] > 0).long() * (classes - 1))}, classes=classes)


@pytest.fixture
def mixed():
    return joined(
        {"north": holder("n", 60, 5, 2, 0), "south": holder("s", 90, 8, 3, 1), "east": holder("e", 40, 5, 2, 2)}
    )


PRIVATE = fedfdp.DPSGD(epsilon=20.0, sigma=1.0, q=0.2, clip=1.0)
OPTIONS = {"algorithm": fedfdp.FedAvg(lr=0.5), "rounds": 4, "own": ["stem", "head"], "models": {"south": Net(8, 3)}}


@pytest.mark.parametrize("privacy", [None, PRIVATE], ids=["plain", "private"])
def test_holders_with_other_columns_and_classes_train_one_body(mixed, tmp_path, privacy):
    result = fedfdp.train(Net(5, 2), mixed, privacy=privacy, out=tmp_path / "run", **OPTIONS)
    south = fedfdp.load(tmp_path / "run", Net(8, 3), holder="south").state_dict()
    north = fedfdp.load(tmp_path / "run", Net(5, 2), holder="north").state_dict()
    assert torch.equal(south["body.weight"], north["body.weight"])
    assert (south["stem.weight"].shape, north["head.weight"].shape) == ((6, 8), (2, 6))
    assert torch.equal(result.model.state_dict()["body.weight"], north["body.weight"])
    x, y = mixed.clients[1].test.take()
    net = Net(8, 3)
    net.load_state_dict(south)
    loss = nn.functional.cross_entropy(net(x), y).item()
    assert result.history[-1]["clients"]["loss"][1] == pytest.approx(loss, rel=1e-5)
    assert result.summary["clients"] == 3


def test_names_sizes_and_fingerprint(mixed):
    assert mixed.names == ("north", "south", "east")
    assert sum(mixed.sizes) == sum(part.sizes[0] for part in map(mixed.part, mixed.names))
    assert mixed.part("south").input_shape == (8,)
    assert mixed.holdings()["classes"] is None
    again = joined({name: mixed.part(name) for name in ("south", "north", "east")})
    assert (
        again.fingerprint()
        != mixed.fingerprint()
        == joined({name: mixed.part(name) for name in mixed.names}).fingerprint()
    )


def test_several_clients_of_a_part_are_named_after_both(digits):
    both = joined({"digits": digits, "other": holder("o", 40, 5, 2, 0)})
    assert both.names == (*(f"digits/client-{i}" for i in range(4)), "other")


def test_what_is_missing_is_said_before_the_first_round(mixed, tmp_path):
    with pytest.raises(SettingError, match=r"south has records of shape \(8,\) and 3 outputs.*give its model too"):
        fedfdp.train(Net(5, 2), mixed, out=tmp_path / "run", **{**OPTIONS, "models": None})
    with pytest.raises(SettingError, match=r"stem.weight of south's model is \(6, 8\), which is no leading part"):
        fedfdp.train(Net(5, 2), mixed, out=tmp_path / "run", **{**OPTIONS, "own": ["head"]})
    assert not (tmp_path / "run").exists()
    regression = Federation.from_clients({"r": (torch.randn(9, 5), torch.randn(9))})
    with pytest.raises(DataError, match="classification and regression"):
        joined({"north": mixed.part("north"), "r": regression})
