"""Models of text written to files: tokens and masks as inputs, compared on real records."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedfdp
from fedfdp.core.errors import DataError, RunError
from fedfdp.core.trees import Leaf
from fedfdp.runs import exported
from fedfdp.runs.exported import export, made_up

FORM = (Leaf("input_ids", (6,), "int64"), Leaf("attention_mask", (6,), "int64"))


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.kinds, self.last = nn.Embedding(50, 4), nn.Embedding(3, 4), nn.Linear(4, 2)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        mask = attention_mask[..., None].float()
        return self.last((self.words(input_ids) * mask).sum(1) / mask.sum(1).clamp(min=1))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    place = tmp_path_factory.mktemp("words")
    chance = torch.Generator().manual_seed(0)
    x = {"input_ids": torch.randint(50, (40, 6), generator=chance), "attention_mask": torch.ones(40, 6).long()}
    x["attention_mask"][::2, 3:] = 0
    clients = fedfdp.Federation.from_clients({"one": (x, torch.arange(40) % 2)})
    torch.manual_seed(0)
    fedfdp.train(Words(), clients, algorithm=fedfdp.FedAvg(lr=0.1), rounds=1, out=place / "run")
    np.savez(place / "new.npz", **{name: part.numpy() for name, part in x.items()})
    np.savez(place / "other.npz", input_ids=np.zeros((2, 6), np.int64))
    return place


def test_made_up_records_are_like_real_ones():
    ids, mask = made_up(Words(), FORM).parts
    assert int(ids.max()) > 2  # out of the larger table
    assert ids.dtype == mask.dtype == torch.int64
    assert (mask.sort(1, descending=True).values == mask).all()  # padding is at the end
    assert (mask[:, 0] == 1).all()
    (plain,) = made_up(nn.Linear(2, 2), (Leaf("", (2,), "float32"),))[None]
    assert plain.shape == (3, 2)


def test_real_records_are_compared_too(run, monkeypatch):
    export(run / "run", run / "model.safetensors", Words(), run / "new.npz")
    with pytest.raises(DataError, match=r"other\.npz: no array attention_mask"):
        export(run / "run", run / "model.safetensors", Words(), run / "other.npz")

    def wrong(model, x, file, folder):
        file.write_bytes(b"")
        return lambda input_ids, attention_mask: model(input_ids, attention_mask) + (len(input_ids) == 40)

    monkeypatch.setitem(exported._WRITERS, ".pt2", wrong)  # right for made-up records alone
    export(run / "run", run / "wrong.pt2", Words())
    with pytest.raises(RunError, match="would not give what the model gives"):
        export(run / "run", run / "wrong.pt2", Words(), run / "new.npz")
    assert not (run / "wrong.pt2").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["words", "bert"])
def test_onnx_takes_tokens_and_masks(run, tmp_path, kind):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    arrays = dict(np.load(run / "new.npz"))
    folder, model = run / "run", Words()
    if kind == "bert":
        model = _bert(tmp_path)
        x = {name: torch.from_numpy(part) for name, part in arrays.items()}
        clients = fedfdp.Federation.from_clients({"one": (x, torch.arange(40) % 2)})
        folder = tmp_path / "run"
        fedfdp.train(model, clients, algorithm=fedfdp.FedAvg(lr=0.1), rounds=1, out=folder)
    export(folder, tmp_path / "model.pt2", model, run / "new.npz")
    export(folder, tmp_path / "model.onnx", model, run / "new.npz")
    loaded = fedfdp.load(folder, model)
    session = runtime.InferenceSession(tmp_path / "model.onnx")
    assert [given.type for given in session.get_inputs()] == ["tensor(int64)"] * 2
    for few in (1, 7):
        given = {name: part[:few] for name, part in arrays.items()}
        found = session.run(None, {place.name: given[place.name] for place in session.get_inputs()})[0]
        with torch.no_grad():
            right = loaded(**{name: torch.from_numpy(part) for name, part in given.items()})
        right = right if isinstance(right, Tensor) else right.logits
        torch.testing.assert_close(torch.from_numpy(found), right, rtol=1e-4, atol=1e-5)


def _bert(folder) -> nn.Module:
    """As `hf:FOLDER` makes it, with adapters."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("peft")
    size = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 8}
    config = transformers.BertConfig(vocab_size=50, max_position_embeddings=8, **size)
    transformers.BertModel(config).save_pretrained(folder / "bert")
    lora = fedfdp.models.Lora(2, ("query",))
    return fedfdp.models.build(f"hf:{folder}/bert", input_shape=(6,), outputs=2, seed=0, lora=lora)
