"""Models of the size that people fine-tune, random weights: what a step takes in memory. Measured where named only."""

from fedfdp.bench.named.adapters import adapted
from fedfdp.bench.named.base import CLASSES, Named
from fedfdp.bench.named.text import classifier

# DistilBERT as it was published: 67 million weights.
_SIZE = {"vocab_size": 30522, "dim": 768, "hidden_dim": 3072, "n_layers": 6, "n_heads": 12, "num_labels": CLASSES}
_WHOLE = classifier("DistilBert", {**_SIZE, "dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0})
LARGE = {
    "distilbert": Named("transformers", "distilbert", _WHOLE),
    "distilbert-lora": Named(
        "peft", "distilbert-lora", adapted(_WHOLE, "LoraConfig", r=8, target_modules=["q_lin", "v_lin"])
    ),
}
