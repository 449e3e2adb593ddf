"""A frozen backbone with a trainable head: the same as training the head alone on the backbone's features."""

import copy
import math

import pytest
import torch
from torch import nn

import fedfdp
from fedfdp.algorithms import ALGORITHMS
from fedfdp.core.errors import RunError, SettingError
from fedfdp.core.records import to_bytes
from fedfdp.data import Federation
from fedfdp.experiments.traffic import measure
from fedfdp.models import build, freeze_but
from fedfdp.runs import config as configs
from fedfdp.runs.build import launch, model_of
from frozen_net import FrozenNet

PRIVATE = fedfdp.DPSGD(delta=1e-5, epsilon=8.0, sigma=2.0, sigma_loss=5.0, q=0.2, clip=0.5, accountant="rdp")
HEAD = 12 * 10 + 10  # weights of the head


def pretrained() -> FrozenNet:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return FrozenNet(freeze=True)


def by_features(federation: Federation, net: FrozenNet) -> Federation:
    """The same federation, each record replaced by what the backbone makes of it when it is in use."""
    backbone = copy.deepcopy(net.backbone).eval()
    with torch.no_grad():
        features = backbone(federation.x)
    holders = {}
    for client in federation.clients:
        train, test = client.train.index, client.test.index
        holders[client.name] = (features[train], federation.y[train], features[test], federation.y[test])
    return Federation.from_clients(holders, classes=10)


@pytest.mark.parametrize("name", list(ALGORITHMS))
@pytest.mark.parametrize("private", [True, False], ids=["private", "plain"])
@pytest.mark.usefixtures("shared_noise")
def test_every_method_trains_the_head_as_if_it_were_the_whole_model(digits, name, private, tmp_path):
    method = ALGORITHMS[name](lr=0.2)
    privacy = PRIVATE if private else None
    try:
        method.check_privacy(privacy)
    except SettingError:
        pytest.skip("the method has no such form")
    net = pretrained()
    settings = {"algorithm": method, "privacy": privacy, "rounds": 3, "seed": 5, "eval_every": 3}
    whole = fedfdp.train(net, digits, **settings, out=tmp_path / "whole")
    alone = fedfdp.train(copy.deepcopy(net.head), by_features(digits, net), **settings, out=tmp_path / "alone")
    trained, head = whole.model, alone.model
    if method.personal:  # the clients' own models are what is trained
        trained = fedfdp.load(tmp_path / "whole", copy.deepcopy(net), holder="client-1")
        head = fedfdp.load(tmp_path / "alone", copy.deepcopy(net.head), holder="client-1")
    for name_, weight in head.named_parameters():
        found = dict(trained.named_parameters())[f"head.{name_}"]
        assert not torch.equal(found, dict(net.named_parameters())[f"head.{name_}"])
        torch.testing.assert_close(found, weight, rtol=1e-4, atol=1e-5)
    for key, value in net.backbone.state_dict().items():
        assert torch.equal(whole.model.backbone.state_dict()[key], value), key
    assert whole.summary["weights"] == HEAD
    assert whole.summary["epsilon"] == alone.summary["epsilon"]
    assert whole.summary["loss"] == pytest.approx(alone.summary["loss"], rel=1e-4)


@pytest.mark.usefixtures("shared_noise")
def test_many_clients_in_one_pass_although_the_backbone_has_dropout(digits):
    """Frozen dropout draws nothing, so the fused path is taken, and is what client by client gives."""
    results = []
    for fused in (True, False):
        settings = {"algorithm": fedfdp.FedFDP(lr=1.0), "privacy": PRIVATE, "rounds": 2, "fused": fused}
        results.append(fedfdp.train(pretrained(), digits, **settings).model)
    for one, other in zip(results[0].parameters(), results[1].parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_batch_statistics_that_would_be_trained_are_still_refused(digits):
    with pytest.raises(SettingError, match=r"replace it by nn\.GroupNorm\(4, 12\)"):
        fedfdp.train(FrozenNet(), digits, algorithm=fedfdp.FedAvg(lr=0.1), privacy=PRIVATE, rounds=1)


def test_an_interrupted_run_goes_on_to_the_same_bits_and_keeps_the_backbone(digits, tmp_path):
    net = pretrained()
    settings = {"algorithm": fedfdp.Scaffold(lr=0.2), "privacy": PRIVATE, "rounds": 4, "eval_every": 1}
    whole = fedfdp.train(net, digits, **settings)

    def stop(update) -> None:
        if update.step.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedfdp.train(net, digits, **settings, out=tmp_path / "cut", on_update=stop)
    other = copy.deepcopy(net)
    other.backbone[1].bias.data += 1.0
    with pytest.raises(RunError, match="was started with another model"):
        fedfdp.train(other, digits, **settings, out=tmp_path / "cut", resume=True)
    resumed = fedfdp.train(net, digits, **settings, out=tmp_path / "cut", resume=True)
    for key, value in whole.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[key], value), key


def test_only_the_head_is_sent():
    """Four bytes a weight; FedAvg sends the head once each way, SCAFFOLD its control variate too."""
    rows = {row.method: row for row in measure(pretrained(), input_shape=(64,), outputs=10)}
    assert {row.weights for row in rows.values()} == {HEAD}
    frame = len(to_bytes({"weight": torch.zeros(1)}))
    assert 4 * HEAD < rows["fedavg"].up < 4 * HEAD + 4 * frame
    assert 8 * HEAD < rows["scaffold"].up < 8 * HEAD + 6 * frame


def test_patterns_name_layers_or_parameters():
    def trained(*patterns: str) -> list[str]:
        model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2))
        freeze_but(model, patterns)
        return [name for name, p in model.named_parameters() if p.requires_grad]

    assert trained("2") == trained("2.*") == ["2.weight", "2.bias"]
    assert trained("*.bias") == ["0.bias", "1.bias", "2.bias"]
    assert trained("0", "2.bias") == ["0.weight", "0.bias", "2.bias"]
    assert trained("[12].weight") == ["1.weight", "2.weight"]
    with pytest.raises(SettingError, match=r"model\.trainable = 'head': matches no parameter; known: 0, 1, 2"):
        trained("2", "head")
    with pytest.raises(SettingError, match="nothing is left to train"):
        trained()


def test_what_is_frozen_by_the_config_is_frozen_in_the_run(tmp_path):
    overrides = ["data.fraction=0.2", "data.clients=3", "rounds=2", "model.name=mlp", 'model.trainable=["3"]']
    config = configs.load("digits", [*overrides, "model.arguments={hidden=[16]}"])
    result = launch(config, out=tmp_path / "run")
    before = build("mlp", input_shape=(1, 8, 8), outputs=10, seed=config.seed, arguments={"hidden": [16]})
    after, first = result.model.state_dict(), before.state_dict()
    moved = {name for name, tensor in after.items() if not torch.equal(tensor, first[name])}
    assert moved == {"3.weight", "3.bias"}
    assert result.summary["weights"] == 16 * 10 + 10
    stored = configs.load(str(tmp_path / "run" / "config.toml"))
    assert stored == config.resolved()
    assert not math.isclose(result.summary["loss"], 0.0)
    trained = [name for name, p in model_of(stored, _federation(stored)).named_parameters() if p.requires_grad]
    assert trained == ["3.weight", "3.bias"]


def _federation(config: configs.Config) -> Federation:
    from fedfdp.runs.build import federation_of

    return federation_of(config)
