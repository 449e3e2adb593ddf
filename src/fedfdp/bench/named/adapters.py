"""Models of transformers with adapters of peft: only what the adapter adds is trained, and the new head."""

from collections.abc import Callable, Sequence

from torch import nn

from fedfdp.bench.named.base import Named, declared
from fedfdp.bench.named.seen import MODELS as IMAGES
from fedfdp.bench.named.text import MODELS as TEXTS

RANK = 8
BERT_LAYERS, _LLAMA = ("query", "value"), ("q_proj", "v_proj")
_TARGETS: dict[str, Sequence[str]] = {
    **dict.fromkeys(("BERT", "RoBERTa"), BERT_LAYERS),
    **dict.fromkeys(("Llama", "Gemma", "BART", "ViT", "Swin"), _LLAMA),
    "DistilBERT": ("q_lin", "v_lin"),
    "GPT2": ("c_attn",),
    "T5": ("q", "v"),
}


def adapted(base: Callable[[], nn.Module], config: str, **options: object) -> Callable[[], nn.Module]:
    """The model with an adapter of peft's in place of its inner module."""

    def make() -> nn.Module:
        declared()
        import peft

        whole = base()
        whole.model = peft.get_peft_model(whole.get_submodule("model"), getattr(peft, config)(**options))
        for name, parameter in whole.named_parameters():
            if name.startswith(("head", "model.base_model.model.classifier", "model.base_model.model.score")):
                parameter.requires_grad_(True)
        return whole

    return make


def _lora(name: str, base: Callable[[], nn.Module], **more: object) -> Callable[[], nn.Module]:
    return adapted(base, "LoraConfig", r=RANK, target_modules=list(_TARGETS[name]), **more)


def on_bert(config: str, **options: object) -> Callable[[], nn.Module]:
    return adapted(TEXTS["BERT"], config, **options)


_PROMPT = {"task_type": "SEQ_CLS", "num_virtual_tokens": 8}
ADAPTERS = [
    *(
        Named("peft", f"{name}, LoRA", _lora(name, TEXTS[name]))
        for name in ("BERT", "RoBERTa", "DistilBERT", "GPT2", "T5", "Llama", "Gemma", "BART")
    ),
    *(Named("peft", f"{name}, LoRA", _lora(name, IMAGES[name]), kind="image") for name in ("ViT", "Swin")),
    Named("peft", "BERT, DoRA", _lora("BERT", TEXTS["BERT"], use_dora=True)),
    Named("peft", "BERT, LoRA of embeddings", on_bert("LoraConfig", r=RANK, target_modules=["word_embeddings"])),
    Named("peft", "BERT, IA3", on_bert("IA3Config", target_modules=["key", "value"], feedforward_modules=[])),
    Named("peft", "BERT, prompt tuning", on_bert("PromptTuningConfig", **_PROMPT)),
    Named("peft", "BERT, p-tuning", on_bert("PromptEncoderConfig", **_PROMPT, encoder_hidden_size=64)),
    Named("peft", "BERT, prefix tuning", on_bert("PrefixTuningConfig", **_PROMPT)),
    Named("peft", "BERT, LoHa", on_bert("LoHaConfig", r=RANK, target_modules=list(BERT_LAYERS))),
    Named("peft", "BERT, LoKr", on_bert("LoKrConfig", r=RANK, target_modules=list(BERT_LAYERS))),
    Named("peft", "BERT, VeRA", on_bert("VeraConfig", r=RANK, target_modules=list(BERT_LAYERS))),
    Named("peft", "BERT, OFT", on_bert("OFTConfig", r=RANK, oft_block_size=0, target_modules=list(BERT_LAYERS))),
    Named("peft", "BERT, norms", on_bert("LNTuningConfig", target_modules=["LayerNorm"])),
]  # fmt: skip
