"""The frozen beginning of a model is computed once, and training is what it is without that."""

import copy

import pytest
import torch
from torch import nn

import fedfdp
from fedfdp.core.trees import Leaf
from fedfdp.features import prefix
from fedfdp.models import Lora, adapters, pretrained
from fedfdp.models.losses import cross_entropy
from fedfdp.models.outputs import Unwrapped
from fedfdp.privacy.clipping import clipped_sum
from fedfdp.privacy.clipping.plan import path_of

transformers = pytest.importorskip("transformers")
pytest.importorskip("peft")
FORM = (Leaf("", (2,), "float32"),)
SIZE = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}


def text_model(kind: str, config: str, targets: list[str], **more: object) -> nn.Module:
    torch.manual_seed(0)
    settings = getattr(transformers, config)(vocab_size=20, pad_token_id=0, num_labels=2, **{**SIZE, **more})
    settings._attn_implementation = "eager"
    model = getattr(transformers, kind)(settings)
    if "Bert" in kind:
        pretrained._mask_by_hand(model)
    return adapters.with_adapters(model, Lora(2, tuple(targets)), None, ())


def clients(count: int = 40) -> fedfdp.Federation:
    chance = torch.Generator().manual_seed(0)
    x = {"input_ids": torch.randint(1, 20, (count, 6), generator=chance), "attention_mask": torch.ones(count, 6).long()}
    y, half = torch.arange(count) % 2, count // 2
    first, second = ({name: part[place] for name, part in x.items()} for place in (slice(half), slice(half, None)))
    return fedfdp.Federation.from_clients({"north": (first, y[:half]), "south": (second, y[half:])})


@pytest.fixture(autouse=True)
def small_ones_too(monkeypatch):
    monkeypatch.setattr(prefix, "LEAST", 0)


BERT = ("BertForSequenceClassification", "BertConfig", ["layer.2.attention.self.query", "layer.2.attention.self.value"])
DRY = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
LLAMA = ("LlamaForSequenceClassification", "LlamaConfig", ["layers.2.self_attn.q_proj"])


@pytest.mark.parametrize("kind", [BERT, pytest.param(LLAMA, marks=pytest.mark.slow)])
def test_the_clipped_sum_is_the_same(kind, monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("FEDFDP_DATA", str(tmp_path))
    caplog.set_level("INFO", "fedfdp")
    federation, loss = clients(), Unwrapped(cross_entropy, "logits")
    plain = text_model(*kind, **(DRY if kind is BERT else {}))
    quick = copy.deepcopy(plain)
    inner = prefix.computed_once(quick, federation, "logits")
    last = "bert.encoder.layer.1" if kind is BERT else "model.layers.1"
    assert f"{last} is frozen: computed once" in caplog.text
    assert inner.form[-1] == Leaf("frozen_part", (6, 16), "float32")
    assert [file.stat().st_mode & 0o777 for file in (tmp_path / "features").glob("*.npy")] == [0o600]
    right = clipped_sum(plain.train(), loss, federation.x, federation.y, clip=0.1)
    found = clipped_sum(quick.train(), loss, inner.x, federation.y, clip=0.1)
    torch.testing.assert_close(found.norms, right.norms, rtol=1e-5, atol=0)
    torch.testing.assert_close(found.flat, right.flat, rtol=1e-5, atol=1e-7)
    assert path_of(quick) == path_of(plain)
    assert kind is LLAMA or path_of(quick) == ("rules", "")
    called = list[str]()
    inside = quick.get_submodule(f"base_model.model.{last}.{'output' if kind is BERT else 'mlp'}")
    inside.register_forward_hook(lambda *_: called.append("frozen"))
    quick(**dict(zip(inner.x.names, inner.x.parts, strict=True)))
    assert called == []
    quick(**dict(zip(federation.x.names, federation.x.parts, strict=True)))  # takes records as they are too
    assert called == ["frozen"]


def test_training_is_the_same(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDFDP_DATA", str(tmp_path))
    model = text_model(*BERT)  # with dropout in what is trained
    kept = fedfdp.train(model, clients(), algorithm=fedfdp.FedAvg(lr=0.5), rounds=2)
    assert list((tmp_path / "features").glob("*.npy"))
    monkeypatch.setattr(prefix, "WORTH", 2.0)
    plain = fedfdp.train(model, clients(), algorithm=fedfdp.FedAvg(lr=0.5), rounds=2)
    assert kept.summary["loss"] == pytest.approx(plain.summary["loss"], rel=1e-6)
    assert kept.summary["task"] == plain.summary["task"]
    torch.testing.assert_close(kept.model.state_dict(), plain.model.state_dict(), rtol=1e-5, atol=1e-6)


def test_only_what_the_rest_can_do_without_is_skipped():
    bert = text_model("BertForSequenceClassification", "BertConfig", ["layer.0.attention.self.query"])
    assert prefix._skips(bert, clients().form, "logits") is None  # only the table is before it
    bert = text_model(*BERT)
    found = prefix._skips(bert, clients().form, "logits")
    assert [name.rpartition("bert.")[2] for name in found] == ["embeddings", "encoder.layer.0", "encoder.layer.1"]
    assert "forward" not in vars(bert)
    shared = text_model(  # one layer three times: it is no beginning
        "AlbertForSequenceClassification", "AlbertConfig", ["attention.query"], embedding_size=16
    )
    assert prefix._skips(shared, clients().form, "logits") is None


def test_chance_on_the_way_leaves_nothing_fixed():
    class Wild(nn.Module):
        save_pretrained = True

        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(2, 2).requires_grad_(False), nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(nn.functional.dropout(self.first(x), 0.5, self.training))

    assert list(prefix._skips(Wild(), FORM, None)) == ["first"]  # the beginning ends before chance does its part

    class Wilder(Wild):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(nn.functional.dropout(x, 0.5, self.training))

    assert prefix._skips(Wilder(), FORM, None) is None


def test_a_plain_module_stays_as_it_is():
    net, federation = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), clients()
    net[0].requires_grad_(False)
    assert prefix.computed_once(net, federation, None) is federation


def test_a_small_beginning_is_not_worth_it(monkeypatch):
    monkeypatch.setattr(prefix, "LEAST", 10_000)
    assert prefix._skips(text_model(*BERT), clients().form, "logits") is None
