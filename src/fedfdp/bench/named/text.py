"""Text models of transformers: encoders, decoders, both; trained to classify, or to name words by a tied head."""

from collections.abc import Callable, Mapping

from torch import nn

from fedfdp.bench.named.base import CLASSES, LENGTH, TOKENS, Named, Output, Pooled, declared

WIDTH, LAYERS, HEADS = 128, 2, 4
_USUAL = {"vocab_size": TOKENS, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
_POSITIONS = {"max_position_embeddings": 2 * LENGTH}
_WIDE = {"intermediate_size": 4 * WIDTH}
_PADDED = {"num_labels": CLASSES, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
ENCODER = {**_USUAL, **_POSITIONS, **_WIDE, **_PADDED}
DECODER = {**ENCODER, "num_key_value_heads": HEADS // 2, "head_dim": WIDTH // HEADS, "use_cache": False}
_TWO_SIDED = {
    **{"vocab_size": TOKENS, "d_model": WIDTH, "encoder_layers": LAYERS, "decoder_layers": LAYERS, "use_cache": False},
    **{"encoder_ffn_dim": 4 * WIDTH, "decoder_ffn_dim": 4 * WIDTH, **_PADDED, **_POSITIONS},
    **{"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS},
}
_T5 = {
    **{"vocab_size": TOKENS, "d_model": WIDTH, "d_kv": WIDTH // HEADS, "d_ff": 4 * WIDTH, "num_layers": LAYERS},
    **{"num_heads": HEADS, "use_cache": False, **_PADDED, "decoder_start_token_id": 0},
}


def made(kind: str, config: Mapping[str, object]) -> nn.Module:
    """A model of transformers by its class, with random weights."""
    declared()
    import transformers

    module: nn.Module = getattr(transformers, kind)
    family = getattr(module, "config_class")  # noqa: B009 - not an attribute of every nn.Module
    built: nn.Module = module(family(**config))
    return built


def classifier(kind: str, config: Mapping[str, object]) -> Callable[[], nn.Module]:
    return lambda: Output(made(f"{kind}ForSequenceClassification", config))


def language(kind: str, config: Mapping[str, object]) -> Callable[[], nn.Module]:
    """Logits over the words by a head that shares its table with the embedding, averaged over places."""
    return lambda: Output(made(kind, {**config, "tie_word_embeddings": True}), mean=True)


def pooled(
    kind: str, config: Mapping[str, object], *, twice: bool = False, width: int = WIDTH
) -> Callable[[], nn.Module]:
    return lambda: Pooled(made(kind, config), width, twice=twice)


def gpt(**more: object) -> Mapping[str, object]:
    usual = {"vocab_size": TOKENS, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 2 * LENGTH}
    return {**usual, "use_cache": False, **_PADDED, **more}


_OPT = {**ENCODER, "ffn_dim": 4 * WIDTH, "word_embed_proj_dim": WIDTH, "use_cache": False}
_BLOOM = {"vocab_size": TOKENS, "hidden_size": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "use_cache": False, **_PADDED}


MODELS = {
    "BERT": classifier("Bert", ENCODER),
    "RoBERTa": classifier("Roberta", ENCODER),
    "XLM-RoBERTa": classifier("XLMRoberta", ENCODER),
    "ALBERT": classifier("Albert", {**ENCODER, "embedding_size": 64}),
    "DistilBERT": classifier(
        "DistilBert",
        {
            **{"vocab_size": TOKENS, "dim": WIDTH, "hidden_dim": 4 * WIDTH, "n_layers": LAYERS, "n_heads": HEADS},
            **_PADDED,
            **_POSITIONS,
        },
    ),
    "ELECTRA": classifier("Electra", {**ENCODER, "embedding_size": 64}),
    "DeBERTa v2": classifier("DebertaV2", ENCODER),
    "MPNet": classifier("MPNet", ENCODER),
    "CamemBERT": classifier("Camembert", ENCODER),
    "ConvBERT": classifier("ConvBert", {**ENCODER, "embedding_size": 64}),
    "MobileBERT": classifier("MobileBert", {**ENCODER, "intra_bottleneck_size": 64, "embedding_size": 64}),
    "SqueezeBERT": classifier("SqueezeBert", {**ENCODER, "embedding_size": WIDTH}),
    "ModernBERT": classifier(
        "ModernBert", {**ENCODER, "cls_token_id": 1, "sep_token_id": 2, "reference_compile": False}
    ),
    "FNet": classifier("FNet", {**ENCODER, "use_tpu_fourier_optimizations": False}),
    "Nystromformer": classifier("Nystromformer", {**ENCODER, "segment_means_seq_len": LENGTH, "num_landmarks": 8}),
    "GPT2": classifier("GPT2", gpt()),
    "GPT-Neo": classifier(
        "GPTNeo",
        {
            **{"vocab_size": TOKENS, "hidden_size": WIDTH, "num_layers": LAYERS, "num_heads": HEADS, **_POSITIONS},
            **{"attention_types": [[["global", "local"], 1]], "intermediate_size": 4 * WIDTH, "use_cache": False},
            **_PADDED,
        },
    ),
    "GPT-NeoX": classifier("GPTNeoX", {**ENCODER, "use_cache": False}),
    "GPT-J": classifier("GPTJ", gpt(rotary_dim=16)),
    "OPT": classifier("OPT", _OPT),
    "BLOOM": classifier("Bloom", _BLOOM),
    "Llama": classifier("Llama", DECODER),
    "Mistral": classifier("Mistral", DECODER),
    "Qwen2": classifier("Qwen2", DECODER),
    "Qwen3": classifier("Qwen3", DECODER),
    "Gemma": classifier("Gemma", DECODER),
    "Gemma 2": classifier("Gemma2", {**DECODER, "query_pre_attn_scalar": 32}),
    "Phi": classifier("Phi", {**DECODER, "num_key_value_heads": HEADS}),
    "Phi-3": classifier("Phi3", DECODER),
    "StableLM": classifier("StableLm", DECODER),
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
    "GPT2, words": language("GPT2LMHeadModel", gpt()),
    "BERT, words": language("BertForMaskedLM", ENCODER),
    "Llama, words": language("LlamaForCausalLM", DECODER),
    "Gemma, words": language("GemmaForCausalLM", DECODER),
    "OPT, words": language("OPTForCausalLM", _OPT),
}
TEXT = [
    *(Named("transformers", name, make) for name, make in MODELS.items()),
    *(Named("transformers", name, make, classes=TOKENS) for name, make in LANGUAGE.items()),
]
