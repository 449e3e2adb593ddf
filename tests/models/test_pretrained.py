"""Text from a table, and a small pretrained model with adapters: from files to a saved model."""

import json
import re
import shutil
from functools import partial

import numpy
import pytest
import torch
from torch import nn

import fedfdp
from fedfdp.core.errors import DataError, SettingError
from fedfdp.core.trees import Leaf
from fedfdp.models import Model, build, first_output
from fedfdp.models.adapters import Lora, check_reached, told_of_moves, with_adapters
from fedfdp.models.pretrained import remark_of
from fedfdp.models.tasks import TASKS
from fedfdp.privacy.clipping.plan import path_of
from fedfdp.runs import config as configs
from fedfdp.runs.build import federation_of, launch
from fedfdp.runs.exported import export
from fedfdp.runs.predict import predict

transformers = pytest.importorskip("transformers")
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "very", "day"]
NOTES = ["good day", "bad day", "very good day", "very very very bad day"]
IDS = (Leaf("input_ids", (4,), "int64"), Leaf("attention_mask", (4,), "int64"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tokenizer and a model of two thousand weights, random ones."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    place = tmp_path_factory.mktemp("tiny")
    splitter = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, "[UNK]"))
    splitter.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=splitter, pad_token="[PAD]", unk_token="[UNK]")
    tokenizer.save_pretrained(place / "bert")
    torch.manual_seed(0)
    size = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    bert = transformers.BertConfig(vocab_size=len(WORDS), max_position_embeddings=8, **size)
    transformers.BertModel(bert).save_pretrained(place / "bert")
    rows = [f"{'north' if i % 2 else 'south'},{NOTES[i % 4]},{'no' if i % 2 else 'yes'}" for i in range(40)]
    (place / "notes.csv").write_text("\n".join(["clinic,note,good", *rows]) + "\n")
    (place / "run.toml").write_text(
        'rounds = 2\n[data]\nsource = "notes.csv"\nholder = "clinic"\nlabel = "good"\nclasses = ["no", "yes"]\n'
        'columns = { note = { tokenizer = "bert", length = 4 } }\n[model]\nname = "hf:bert"\n'
        'lora = { rank = 2, targets = ["query", "value"] }\n[privacy]\nepsilon = 8.0\nq = 0.5\n'
    )
    return place


def test_a_text_becomes_tokens_and_a_mask(folder):
    federation = federation_of(configs.load(str(folder / "run.toml")))
    ids, mask = federation.x.parts
    longest = [i for i in range(40) if i % 4 == 3]
    assert federation.x.names == ("input_ids", "attention_mask")
    assert ids[0].tolist() == [4, 7, 0, 0]  # good day
    assert mask[0].tolist() == [1, 1, 0, 0]
    assert ids[longest[0]].tolist() == [6, 6, 6, 5]  # cut to the declared length
    text = (folder / "run.toml").read_text().replace('label = "good"\nclasses = ["no", "yes"]', 'task = "language"')
    (folder / "told.toml").write_text(text.replace("columns =", 'ignore = ["good"]\ncolumns ='))
    told = federation_of(configs.load(str(folder / "told.toml")))
    assert told.classes == len(WORDS)
    assert told.y[0].tolist() == [4, 7, -100, -100]


def test_adapters_are_trained_by_the_rules_and_saved(folder, tmp_path, caplog):
    caplog.set_level("INFO", "fedfdp")
    config = configs.load(str(folder / "run.toml"))
    result = launch(config, out=tmp_path / "run")
    assert "all 4 adapters have moved" in caplog.text
    assert "slower than the layer rules" not in caplog.text
    # Four adapters of 2 × 8, and the last layer of 2 × 8 + 2.
    assert result.summary["weights"] == 4 * 16 + 18
    saved = json.loads((tmp_path / "run" / "pretrained" / "adapter_config.json").read_text())
    assert result.summary["remark"] == "pretrained weights"
    assert "(pretrained weights)" in result.summary["data"]
    assert (saved["r"], saved["target_modules"]) == (2, saved["target_modules"])
    (tmp_path / "new.csv").write_text("note\nvery good day\nbad\n")
    found = predict(tmp_path / "run", tmp_path / "new.csv")
    model = fedfdp.load(tmp_path / "run")
    ids, mask = torch.tensor([[6, 4, 7, 0], [5, 0, 0, 0]]), torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]])
    with torch.no_grad():
        expected = model(input_ids=ids, attention_mask=mask).logits.softmax(1).amax(1)
    assert found.columns["probability"] == pytest.approx(expected.tolist(), rel=1e-5)


def test_padding_has_no_part_in_an_answer(folder):
    model = Model(f"hf:{folder}/bert").build(input_shape=(4,), outputs=2, seed=0).eval()
    ids, mask = torch.tensor([[4, 7, 0, 0], [4, 7, 6, 5]]), torch.tensor([[1, 1, 0, 0], [1, 1, 0, 0]])
    with torch.no_grad():
        first, second = model(input_ids=ids, attention_mask=mask).logits
        alone = model(input_ids=ids[:1, :2], attention_mask=mask[:1, :2]).logits[0]
    assert torch.allclose(first, second, atol=1e-6)
    assert torch.allclose(first, alone, atol=1e-6)
    assert path_of(model) == ("", "")


@pytest.fixture(scope="module")
def decoders(tmp_path_factory, folder):
    """GPT-2 and Llama with a table of nine words, of which the last one ends a text and none is for padding."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    place = tmp_path_factory.mktemp("decoders")
    splitter = Tokenizer(models.WordLevel({word: i for i, word in enumerate([*WORDS, "<end>"])}, "[UNK]"))
    splitter.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=splitter, eos_token="<end>", unk_token="[UNK]")
    size = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 9, "eos_token_id": 8}
    gpt2 = transformers.GPT2Config(**size, n_positions=16, bos_token_id=8)
    llama = transformers.LlamaConfig(**size, intermediate_size=8, max_position_embeddings=16, bos_token_id=8)
    torch.manual_seed(0)
    made = {"gpt2": transformers.GPT2LMHeadModel(gpt2), "llama": transformers.LlamaForCausalLM(llama)}
    for name, model in made.items():
        model.save_pretrained(place / name)
        tokenizer.save_pretrained(place / name)
    (place / "notes.csv").write_text((folder / "notes.csv").read_text())
    (place / "run.toml").write_text(
        'rounds = 2\n[data]\nsource = "notes.csv"\nholder = "clinic"\nlabel = "good"\nclasses = ["no", "yes"]\n'
        'columns = { note = { tokenizer = "gpt2", length = 8 } }\n[model]\nname = "hf:gpt2"\n'
        'lora = { rank = 2, targets = ["c_attn"] }\n[privacy]\nepsilon = 8.0\nq = 0.5\n'
    )
    return place


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.parametrize("own", [None, 8, 1, -1])
def test_a_decoder_answers_at_the_last_token_that_counts(decoders, tmp_path, name, own):
    """Whatever stands at padding, on either side, whatever its config says, and if a text ends in the pad token."""
    place = shutil.copytree(decoders / name, tmp_path / name)
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps({**config, "pad_token_id": own}))
    model = Model(f"hf:{place}").build(input_shape=(6,), outputs=2, seed=0).eval()
    with torch.no_grad():
        for text in ([4, 7], [4, 8], [4, 0], [5, 1, 1], [8], [0]):
            count, rest = len(text), 6 - len(text)
            body = model.base_model(input_ids=torch.tensor([text])).last_hidden_state[0, -1]
            alone = body @ model.score.weight.T
            for pad in (8, 0, 1):
                ids = torch.tensor([text + [pad] * rest, [pad] * rest + text])
                mask = torch.tensor([[1] * count + [0] * rest, [0] * rest + [1] * count])
                found = model(input_ids=ids, attention_mask=mask).logits
                assert torch.allclose(found, alone.expand(2, 2), atol=1e-6), (text, pad)
                if name == "llama":  # GPT-2's second input is another one
                    assert torch.equal(model(ids, mask).logits, found)  # a tuple's inputs come by place
    assert path_of(model) == ("", "")


def test_a_decoder_uses_the_places_that_it_is_given(decoders):
    model = Model(f"hf:{decoders / 'gpt2'}").build(input_shape=(6,), outputs=2, seed=0).eval()
    ids = torch.tensor([[4, 7, 1]])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    with torch.no_grad():
        usual = model(**inputs).logits
        assert torch.equal(model(**inputs, position_ids=torch.tensor([[0, 1, 2]])).logits, usual)
        assert not torch.allclose(model(**inputs, position_ids=torch.tensor([[5, 3, 9]])).logits, usual, atol=1e-4)


def test_adapters_of_a_decoder_are_read_by_peft(decoders, tmp_path, caplog):
    import peft

    launch(configs.load(str(decoders / "run.toml")), out=tmp_path / "run")
    assert "slower than the layer rules" not in caplog.text
    classifier = transformers.AutoModelForSequenceClassification
    base = classifier.from_pretrained(decoders / "gpt2", num_labels=2, pad_token_id=8)  # as docs/tasks.md says
    theirs = peft.PeftModel.from_pretrained(base, tmp_path / "run" / "pretrained").eval()
    ids, mask = torch.tensor([[4, 7, 8, 8], [6, 4, 7, 8]]), torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0]])
    with torch.no_grad():
        ours = fedfdp.load(tmp_path / "run")(input_ids=ids, attention_mask=mask).logits
        assert torch.allclose(theirs(input_ids=ids, attention_mask=mask).logits, ours, atol=1e-5)
    (tmp_path / "new.csv").write_text("note\ngood day\nvery good day\n")
    told = predict(tmp_path / "run", tmp_path / "new.csv").columns["probability"]
    assert told == pytest.approx(ours.softmax(1).amax(1).tolist(), rel=1e-5)


def test_an_adapter_without_a_part_is_refused(folder):
    model = build(f"hf:{folder}/bert", input_shape=(4,), outputs=2, seed=0, lora=Lora(2, ("query",)))
    check_reached(model, IDS, "logits")

    class Idle(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.lora_idle = nn.Linear(4, 2), nn.Linear(4, 2)

        def forward(self, x):
            return self.used(x)

    with pytest.raises(SettingError, match="2 of 2 adapters have no part in what the model gives, such as lora_idle"):
        check_reached(Idle(), (Leaf("", (4,), "float32"),), None)
    start = {"lora_a": torch.zeros(2), "lora_b": torch.zeros(2), "last": torch.zeros(2)}
    now = {**start, "lora_a": torch.ones(2)}
    assert told_of_moves(start, now) == (
        "1 of 2 adapters have not moved, such as lora_b: their gradients are too small for their numbers to change "
        "(a larger lr or alpha helps), or the run trains another copy"
    )
    assert told_of_moves({"last": torch.zeros(2)}, now) == ""


def test_adapters_of_any_module():
    model = Model("mlp", lora=Lora(2, ("1",)), trainable=("3",)).build(input_shape=(4,), outputs=3, seed=0)
    plain = Model("mlp").build(input_shape=(4,), outputs=3, seed=0)
    x = torch.randn(5, 4)
    assert torch.equal(model(x), plain(x))  # B starts at 0, the layer beside as it came
    trained = {name: tuple(part.shape) for name, part in model.named_parameters() if part.requires_grad}
    assert sorted(trained.values()) == [(2, 4), (3,), (3, 128), (128, 2)]  # A, the layer's bias and weight, B
    assert remark_of(model) == ""


def test_an_input_that_the_model_does_not_use_is_refused(folder):
    """transformers takes any further input by name and says nothing of it: predictions would not depend on it."""
    text = (folder / "run.toml").read_text().replace("columns = {", "columns = { score = [0, 1],")
    (folder / "table.toml").write_text(text.replace("notes.csv", "scores.csv"))
    rows = (folder / "notes.csv").read_text().splitlines()
    scored = [f"{row},{'score' if i == 0 else i % 2}" for i, row in enumerate(rows)]
    (folder / "scores.csv").write_text("\n".join(scored) + "\n")
    line = (
        "model = 'BertForSequenceClassification': does not use the input table; "
        "list these columns in data.ignore instead, or give a module of yours"
    )
    with pytest.raises(SettingError, match=f"^{re.escape(line)}$"):
        launch(configs.load(str(folder / "table.toml")))
    net = transformers.AutoModelForSequenceClassification.from_pretrained(folder / "bert")
    form = (*IDS, Leaf("table", (1,), "float32"))
    with pytest.raises(SettingError, match="does not use the input table"):  # as it is, and below adapters
        first_output(with_adapters(net, Lora(2, ("query",)), None, ()), form)


def test_tokens_of_another_models_tokenizer_are_refused_before_anything_is_charged(folder, decoders, tmp_path):
    """Of seven words, where the tokenizer has nine; the texts have the last one of its words at padding."""
    small = transformers.GPT2Config(vocab_size=7, n_positions=16, n_embd=8, n_layer=1, n_head=2)
    transformers.GPT2LMHeadModel(small).save_pretrained(tmp_path / "small")
    config = configs.load(str(decoders / "run.toml"), [f"model.name=hf:{tmp_path}/small"])
    line = (
        "model = 'GPT2ForSequenceClassification': its table has 7 words, the records have others: "
        "their tokenizer is another model's; take the tokenizer in the model's own folder"
    )
    with pytest.raises(SettingError, match=f"^{re.escape(line)}$"):
        launch(config, out=tmp_path / "run")
    assert not list(tmp_path.glob("run/*ledger*"))
    told = [f"data.source={folder}/notes.csv", "data.task=language", 'data.ignore=["good"]']
    text = (decoders / "run.toml").read_text().replace('label = "good"\nclasses = ["no", "yes"]', "")
    (decoders / "told.toml").write_text(text)
    with pytest.raises(SettingError, match="its words are 7, the data's 9: the tokenizer is another model's; take the"):
        launch(configs.load(str(decoders / "told.toml"), [*told, f"model.name=hf:{tmp_path}/small"]))


@pytest.mark.parametrize("wrong", [-1, 8])
def test_tokens_out_of_the_table_are_refused_in_training_prediction_and_export(folder, tmp_path, wrong):
    net = transformers.AutoModelForSequenceClassification.from_pretrained(folder / "bert")
    ids = torch.randint(0, 8, (20, 4), generator=torch.Generator().manual_seed(0))
    x = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    clients = {"north": (x, torch.arange(20) % 2), "south": (x, torch.arange(20) % 2)}
    method, line = fedfdp.FedAvg(lr=0.1), "its table has 8 words, the records have others"
    train = partial(fedfdp.train, net, algorithm=method, rounds=1)
    train(fedfdp.Federation.from_clients(clients), out=tmp_path / "run")
    bad = ids.clone()
    bad[3, 2] = wrong
    numpy.savez(tmp_path / "bad.npz", input_ids=bad, attention_mask=torch.ones_like(ids))
    with pytest.raises(SettingError, match=line):
        predict(tmp_path / "run", tmp_path / "bad.npz", net)
    with pytest.raises(SettingError, match=line):
        export(tmp_path / "run", tmp_path / "net.pt2", net, tmp_path / "bad.npz")
    clients["south"] = ({**x, "input_ids": bad}, torch.arange(20) % 2)
    with pytest.raises(SettingError, match=line):
        train(fedfdp.Federation.from_clients(clients))
    typed = {name: ({**x, "token_type_ids": bad}, y) for name, (_, y) in clients.items()}
    with pytest.raises(SettingError, match="its table has 2 types of tokens, the records have others in token_type_i"):
        train(fedfdp.Federation.from_clients(typed))


def test_a_tokenizer_that_cannot_pad_or_leaves_no_place_is_one_line(folder, tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    def saved(name, **given):
        splitter = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, "[UNK]"))
        splitter.pre_tokenizer = pre_tokenizers.Whitespace()
        if name == "framed":
            splitter.post_processor = processors.TemplateProcessing(
                single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
            )
        transformers.PreTrainedTokenizerFast(tokenizer_object=splitter, **given).save_pretrained(tmp_path / name)
        return str(tmp_path / name)

    def read(tokenizer, length=4):
        sets = [f"data.columns.note.tokenizer={tokenizer}", f"data.columns.note.length={length}"]
        return federation_of(configs.load(str(folder / "run.toml"), sets)).x.parts

    with pytest.raises(SettingError, match="has no token to pad with, nor one for the end or for unknown words; give"):
        read(saved("bare"))
    found = read(saved("ids", pad_token="[PAD]", unk_token="[UNK]", model_input_names=["input_ids"]))
    assert found[1][0].tolist() == [1, 1, 0, 0]  # good day
    framed = saved("framed", pad_token="[PAD]", unk_token="[UNK]")
    assert read(framed, 3)[0][0].tolist() == [2, 4, 3]  # good, framed
    for length in (1, 2):
        allowed = f"data.columns.note.length = {length}: above 2: so many tokens the tokenizer adds to every text"
        with pytest.raises(SettingError, match=allowed):
            read(framed, length)


def test_what_does_not_fit_is_one_line(folder):
    with pytest.raises(SettingError, match=r"no config\.json"):
        build("hf:nowhere", input_shape=(4,), outputs=2, seed=0)
    with pytest.raises(SettingError, match=r"name some of .*query"):
        build(f"hf:{folder}/bert", input_shape=(4,), outputs=2, seed=0, lora=Lora(2, ("elsewhere",)))
    with pytest.raises(SettingError, match="no model of transformers is taken for segmentation"):
        build(f"hf:{folder}/bert", input_shape=(4,), outputs=2, seed=0, task=TASKS["segmentation"])
    with pytest.raises(SettingError, match=r"model.lora.targets = \(\): .*; name some of 1"):
        Model("linear", lora=Lora()).build(input_shape=(4,), outputs=2, seed=0)
    with pytest.raises(SettingError, match=r"model.trainable = 'hed': with lora it names layers"):
        Model("mlp", lora=Lora(2, ("1",)), trainable=("hed",)).build(input_shape=(4,), outputs=2, seed=0)
    with pytest.raises(SettingError, match=r"data.columns.note.length"):
        configs.load(str(folder / "run.toml"), ["data.columns.note.length=0"])
    config = configs.load(str(folder / "run.toml"), [f"data.columns.note.tokenizer={folder}/none"])
    with pytest.raises(SettingError, match="no such folder"):
        federation_of(config)
    (folder / "empty.csv").write_text("clinic,note,good\nnorth,good day,yes\nnorth,,no\n")
    with pytest.raises(DataError, match="is empty; fill it in"):
        federation_of(configs.load(str(folder / "run.toml"), [f"data.source={folder}/empty.csv"]))
