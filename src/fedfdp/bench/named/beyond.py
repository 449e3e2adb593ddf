"""Twenty models that the rules were not written for: chosen afterwards, to see what happens to the next one."""

from fedfdp.bench.named.adapters import BERT_LAYERS, on_bert
from fedfdp.bench.named.base import Named, Output, Pooled
from fedfdp.bench.named.seen import IMAGE, STAGES
from fedfdp.bench.named.text import DECODER, ENCODER, LAYERS, WIDTH, classifier, gpt, made, pooled

_MIXED = {
    **DECODER,
    "experts_implementation": "eager",
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": WIDTH,
}
_FUNNEL = {"block_sizes": [1, 1], "d_model": WIDTH, "n_head": 4, "d_head": 32, "d_inner": 4 * WIDTH}
_SOUND = {**IMAGE, "num_mel_bins": 64, "max_length": 64, "patch_size": 16, "frequency_stride": 16, "time_stride": 16}
_SIZES = {"hidden_sizes": [16, 32, 64, 128], "num_attention_heads": [1, 2, 4, 8], "sr_ratios": [8, 4, 2, 1]}
_TEXTS = {
    "RoFormer": classifier("RoFormer", {**ENCODER, "embedding_size": WIDTH}),
    "Megatron-BERT": classifier("MegatronBert", ENCODER),
    "RoBERTa, norms first": classifier("RobertaPreLayerNorm", ENCODER),
    "ESM": classifier("Esm", {**ENCODER, "mask_token_id": 4, "position_embedding_type": "rotary"}),
    "ERNIE": classifier("Ernie", ENCODER),
    "Nomic BERT": classifier("NomicBert", ENCODER),
    "BigBird": classifier("BigBird", {**ENCODER, "attention_type": "original_full"}),
    "XLNet": pooled(
        "XLNetModel",
        {**{"vocab_size": ENCODER["vocab_size"], "d_model": WIDTH, "n_layer": LAYERS}, "n_head": 4, "d_inner": 512},
    ),
    "Funnel": pooled("FunnelBaseModel", {"vocab_size": ENCODER["vocab_size"], **_FUNNEL}),
    "GPT-BigCode": classifier("GPTBigCode", gpt()),
    "OLMo 2": pooled("Olmo2Model", DECODER),
    "Cohere": pooled("CohereModel", DECODER),
    "Granite": pooled("GraniteModel", DECODER),
    "Mamba": pooled("MambaModel", {**ENCODER, "state_size": 8, "use_cache": False}),
    "Qwen2, experts": classifier("Qwen2Moe", {**_MIXED, "shared_expert_intermediate_size": WIDTH}),
}
BEYOND = [
    *(Named("transformers", name, make) for name, make in _TEXTS.items()),
    Named(
        "transformers",
        "SegFormer",
        lambda: Output(made("SegformerForImageClassification", {**STAGES, **_SIZES})),
        kind="image",
    ),
    Named(
        "transformers",
        "FocalNet",
        lambda: Output(made("FocalNetForImageClassification", {**STAGES, "embed_dim": 32, "patch_size": 2})),
        kind="image",
    ),
    Named(
        "transformers", "Spectrogram transformer", lambda: Pooled(made("ASTModel", _SOUND), WIDTH), kind="spectrogram"
    ),
    Named(
        "peft",
        "BERT, AdaLoRA",
        on_bert("AdaLoraConfig", init_r=8, target_r=4, total_step=100, target_modules=list(BERT_LAYERS)),
    ),
    Named("peft", "BERT, FourierFT", on_bert("FourierFTConfig", n_frequency=100, target_modules=list(BERT_LAYERS))),
]
