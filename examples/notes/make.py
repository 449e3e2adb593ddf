"""Writes what run.toml needs: made-up notes of five clinics, and a small text model as transformers saves one.

    python examples/notes/make.py

The model is made here and trained for a moment on made-up public texts, to name the telling word in each. It stands
where your own pretrained model would be.
"""

import csv
import random
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

HERE = Path(__file__).parent
COMMON = ["the", "patient", "says", "she", "has", "had", "pain", "fever", "cough", "since", "monday", "and", "asks"]
URGENT, CALM = ["severe", "sudden", "bleeding", "chest", "worse"], ["mild", "better", "usual", "refill", "thanks"]
SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
WORDS = {word: number for number, word in enumerate([*SPECIAL.values(), *COMMON, *URGENT, *CALM])}
SHARES = {"Aller": 0.3, "Bode": 0.4, "Calle": 0.5, "Dosse": 0.6, "Eider": 0.7}  # of urgent notes


def note(chance: random.Random, telling: list[str]) -> str:
    words = chance.choices(COMMON, k=6) + chance.choices(telling, k=2)
    return " ".join(chance.sample(words, len(words)))


def main() -> None:
    splitter = Tokenizer(models.WordLevel(WORDS, "[UNK]"))
    splitter.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    splitter.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=splitter, **SPECIAL)
    tokenizer.save_pretrained(HERE / "model")
    torch.manual_seed(0)
    size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    settings = BertConfig(vocab_size=len(WORDS), num_labels=10, initializer_range=0.2, **size)
    model, chance = BertForSequenceClassification(settings), random.Random(1)
    steps = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(120):
        telling = [chance.randrange(10) for _ in range(32)]
        texts = [note(chance, [(URGENT + CALM)[word]]) for word in telling]
        output = model(input_ids=tokenizer(texts, return_tensors="pt")["input_ids"]).logits
        steps.zero_grad()
        torch.nn.functional.cross_entropy(output, torch.tensor(telling)).backward()
        steps.step()
    model.bert.save_pretrained(HERE / "model")
    chance = random.Random(0)
    with open(HERE / "notes.csv", "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["clinic", "note", "urgent"])
        for clinic, share in SHARES.items():
            for _ in range(400):
                urgent = chance.random() < share
                rows.writerow([clinic, note(chance, URGENT if urgent else CALM), "yes" if urgent else "no"])


if __name__ == "__main__":
    main()
