import json
import logging

import pytest


def test_list(fedfdp):
    code, out, _ = fedfdp("models", "list", "--json")
    assert code == 0
    rows = {row["name"]: row for row in json.loads(out)}
    assert list(rows) == ["paper-cnn", "small-cnn", "mlp", "linear", "head-cnn"]
    assert (rows["linear"]["on_images"], rows["linear"]["on_table"]) == (7850, 62)
    code, out, _ = fedfdp("models", "list")
    assert code == 0
    assert "582,026" in out
    assert "package.module:Class" in out


def test_check_says_that_a_model_can_be_private_and_what_it_costs(fedfdp):
    code, out, err = fedfdp("models", "check", "mlp", "--input-shape", 30, "--outputs", 2, "--set", "hidden=[8]")
    assert code == 0
    assert err == ""
    assert "trained: 266 parameters" in out  # 30·8 + 8 + 8·2 + 2
    assert " × a plain one" in out
    assert "mlp can be trained privately" in out


def test_check_leaves_the_warnings_of_whoever_called_it_on(fedfdp, caplog):
    fedfdp("models", "check", "linear")
    logging.getLogger("fedfdp.node").warning("refused")
    assert "refused" in caplog.text


def test_check_as_json(fedfdp):
    code, out, _ = fedfdp("models", "check", "linear", "--input-shape", "30", "--outputs", "1", "--json")
    assert code == 0
    found = json.loads(out)
    assert found["possible"] is True
    assert found["layers"] == [{"name": "1", "kind": "Linear", "rule": "fast", "advice": ""}]
    assert (found["trained"], found["frozen"]) == (31, 0)
    cost = found["cost"]
    assert cost["private_seconds"] > 0
    assert cost["plain_seconds"] > 0


def test_check_of_your_own_model(fedfdp):
    name = "frozen_net:FrozenNet"
    code, out, _ = fedfdp("models", "check", name, "--input-shape", "64")
    assert code == 1
    assert "replace it by" in out
    assert "nn.GroupNorm(4, 12)" in out
    assert f"{name} cannot be private as it is" in out
    code, out, _ = fedfdp("models", "check", name, "--input-shape", "64", "--trainable", "head", "--set", "outputs=3")
    assert code == 0
    assert "trained: 39 parameters" in out  # 12·3 + 3
    assert "804 frozen" in out


GIVING = """
from torch import nn


class Dict(nn.Linear):
    def forward(self, x):
        return {"seen": x, "logits": super().forward(x)}


class Flat(nn.Linear):
    def forward(self, x):
        return {"logits": super().forward(x)[:, 0]}


class Places(nn.Embedding):
    pass
"""


@pytest.mark.parametrize(
    ("name", "more", "trained"),
    [
        ("Dict", ["in_features=4", "out_features=3"], 15),
        ("Flat", ["in_features=4", "out_features=1"], 5),
        ("Places", ["num_embeddings=9", "embedding_dim=2"], 18),
    ],
)
def test_check_of_models_that_give_a_dict_or_several_places(fedfdp, tmp_path, monkeypatch, name, more, trained):
    """The entry that counts is looked at, whatever its shape for a record."""
    (tmp_path / "giving.py").write_text(GIVING)
    monkeypatch.syspath_prepend(str(tmp_path))
    given = [part for setting in more for part in ("--set", setting)] + (["--tokens", "9"] if name == "Places" else [])
    code, out, err = fedfdp("models", "check", f"giving:{name}", "--input-shape", "4", *given, "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["layers"] == [{"name": "", "kind": name, "rule": "fast", "advice": ""}]
    assert found["trained"] == trained


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("smal-cnn",), "model.name = 'smal-cnn': did you mean 'small-cnn'?"),
        (("small-cnn", "--input-shape", "30"), "needs images of at least 6×6"),
        (("linear", "--input-shape", "3,x"), "--input-shape = '3,x': whole numbers with commas between them"),
        (("linear", "--input-shape", "0"), "--input-shape = '0'"),
        (("linear", "--outputs", "0"), "--outputs = 0: 1 or more"),
        (("mlp", "--set", "hiden=[3]"), "it takes hidden"),
        (("mlp", "--set", "hidden"), "expected section.setting=value"),
        (("absent.module:Net",), "cannot be imported"),
        (("frozen_net:FrozenNet",), "cannot take records of shape (1, 28, 28)"),
        (("frozen_net:FrozenNet", "--input-shape", "64", "--outputs", "3"), "expected (records, 3)"),
        (("frozen_net:FrozenNet", "--input-shape", "64", "--trainable", "haed"), "did you mean 'head'?"),
        (("torch.nn:LSTM",), "cannot be made with {}: TypeError"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(fedfdp, arguments, message):
    code, out, err = fedfdp("models", "check", *arguments)
    assert code == 2
    assert out == ""
    assert message in err
    assert len(err.strip().splitlines()) == 1
