"""Text models of transformers: encoders, decoders, both; trained to classify, or to name words by a tied head."""

from collections.abc import Callable

from torch import nn

from fedfdp.bench.named.base import CLASSES, LENGTH, TOKENS, Named, Output, Pooled, declared

WIDTH, LAYERS, HEADS = 128, 2, 4
_USUAL = {"vocab_size": TOKENS, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
_POSITIONS = {"max_position_embeddings": 2 * LENGTH}
_WIDE = {"intermediate_size": 4 * WIDTH}
_PADDED = {"num_labels": CLASSES, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_ENCODER = {**_USUAL, **_POSITIONS, **_WIDE, **_PADDED}
_DECODER = {**_ENCODER, "num_key_value_heads": HEADS // 2, "head_dim": WIDTH // HEADS, "use_cache": False}
_TWO_SIDED = {
    **{"vocab_size": TOKENS, "d_model": WIDTH, "encoder_layers": LAYERS, "decoder_layers": LAYERS, "use_cache": False},
    **{"encoder_ffn_dim": 4 * WIDTH, "decoder_ffn_dim": 4 * WIDTH, **_PADDED, **_POSITIONS},
    **{"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS},
}
_T5 = {
    **{"vocab_size": TOKENS, "d_model": WIDTH, "d_kv": WIDTH // HEADS, "d_ff": 4 * WIDTH, "num_layers": LAYERS},
    **{"num_heads": HEADS, "use_cache": False, **_PADDED, "decoder_start_token_id": 0},
}


def made(kind: str, config: dict[str, object]) -> nn.Module:
    """A model of transformers by its class, with random weights."""
    declared()
    import transformers

    module: nn.Module = getattr(transformers, kind)
    family = getattr(module, "config_class")  # noqa: B009 - not an attribute of every nn.Module
    built: nn.Module = module(family(**config))  # type: ignore[operator]
    return built


def classifier(kind: str, config: dict[str, object]) -> Callable[[], nn.Module]:
    return lambda: Output(made(f"{kind}ForSequenceClassification", config))


def language(kind: str, config: dict[str, object]) -> Callable[[], nn.Module]:
    """Logits over the words by a head that shares its table with the embedding, averaged over places."""
    return lambda: Output(made(kind, {**config, "tie_word_embeddings": True}), mean=True)


def pooled(kind: str, config: dict[str, object], *, twice: bool = False, width: int = WIDTH) -> Callable[[], nn.Module]:
    return lambda: Pooled(made(kind, config), width, twice=twice)


def _gpt(**more: object) -> dict[str, object]:
    usual = {"vocab_size": TOKENS, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 2 * LENGTH}
    return {**usual, "use_cache": False, **_PADDED, **more}


_OPT = {**_ENCODER, "ffn_dim": 4 * WIDTH, "word_embed_proj_dim": WIDTH, "use_cache": False}
_BLOOM = {"vocab_size": TOKENS, "hidden_size": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "use_cache": False, **_PADDED}

MODELS = {
    "BERT": classifier("Bert", _ENCODER),
    "RoBERTa": classifier("Roberta", _ENCODER),
    "XLM-RoBERTa": classifier("XLMRoberta", _ENCODER),
    "ALBERT": classifier("Albert", {**_ENCODER, "embedding_size": 64}),
    "DistilBERT": classifier(
        "DistilBert",
        {
            **{"vocab_size": TOKENS, "dim": WIDTH, "hidden_dim": 4 * WIDTH, "n_layers": LAYERS, "n_heads": HEADS},
            **_PADDED,
            **_POSITIONS,
        },
    ),
    "ELECTRA": classifier("Electra", {**_ENCODER, "embedding_size": 64}),
    "DeBERTa v2": classifier("DebertaV2", _ENCODER),
    "MPNet": classifier("MPNet", _ENCODER),
    "CamemBERT": classifier("Camembert", _ENCODER),
    "ConvBERT": classifier("ConvBert", {**_ENCODER, "embedding_size": 64}),
    "MobileBERT": classifier("MobileBert", {**_ENCODER, "intra_bottleneck_size": 64, "embedding_size": 64}),
    "SqueezeBERT": classifier("SqueezeBert", {**_ENCODER, "embedding_size": WIDTH}),
    "ModernBERT": classifier(
        "ModernBert", {**_ENCODER, "cls_token_id": 1, "sep_token_id": 2, "reference_compile": False}
    ),
    "FNet": classifier("FNet", {**_ENCODER, "use_tpu_fourier_optimizations": False}),
    "Nystromformer": classifier("Nystromformer", {**_ENCODER, "segment_means_seq_len": LENGTH, "num_landmarks": 8}),
    "GPT2": classifier("GPT2", _gpt()),
    "GPT-Neo": classifier(
        "GPTNeo",
        {
            **{"vocab_size": TOKENS, "hidden_size": WIDTH, "num_layers": LAYERS, "num_heads": HEADS, **_POSITIONS},
            **{"attention_types": [[["global", "local"], 1]], "intermediate_size": 4 * WIDTH, "use_cache": False},
            **_PADDED,
        },
    ),
    "GPT-NeoX": classifier("GPTNeoX", {**_ENCODER, "use_cache": False}),
    "GPT-J": classifier("GPTJ", _gpt(rotary_dim=16)),
    "OPT": classifier("OPT", _OPT),
    "BLOOM": classifier("Bloom", _BLOOM),
    "Llama": classifier("Llama", _DECODER),
    "Mistral": classifier("Mistral", _DECODER),
    "Qwen2": classifier("Qwen2", _DECODER),
    "Qwen3": classifier("Qwen3", _DECODER),
    "Gemma": classifier("Gemma", _DECODER),
    "Gemma 2": classifier("Gemma2", {**_DECODER, "query_pre_attn_scalar": 32}),
    "Phi": classifier("Phi", {**_DECODER, "num_key_value_heads": HEADS}),
    "Phi-3": classifier("Phi3", _DECODER),
    "StableLM": classifier("StableLm", _DECODER),
    "Falcon": classifier("Falcon", {**_USUAL, **_PADDED, "use_cache": False}),
    "T5": pooled("T5Model", _T5, twice=True),
    "T5 encoder": pooled("T5EncoderModel", _T5),
    "mT5": pooled("MT5Model", {**_T5, "feed_forward_proj": "gated-gelu"}, twice=True),
    "BART": pooled("BartModel", _TWO_SIDED, twice=True),
    "mBART": pooled("MBartModel", _TWO_SIDED, twice=True),
    "Pegasus": pooled("PegasusModel", _TWO_SIDED, twice=True),
    "Marian": pooled("MarianModel", {**_TWO_SIDED, "decoder_start_token_id": 0}, twice=True),
}
LANGUAGE = {
    "GPT2, words": language("GPT2LMHeadModel", _gpt()),
    "BERT, words": language("BertForMaskedLM", _ENCODER),
    "Llama, words": language("LlamaForCausalLM", _DECODER),
    "Gemma, words": language("GemmaForCausalLM", _DECODER),
    "OPT, words": language("OPTForCausalLM", _OPT),
}
TEXT = [
    *(Named("transformers", name, make) for name, make in MODELS.items()),
    *(Named("transformers", name, make, classes=TOKENS) for name, make in LANGUAGE.items()),
]
