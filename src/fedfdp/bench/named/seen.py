"""Models of transformers for images and sound."""

from collections.abc import Callable, Mapping

from torch import nn

from fedfdp.bench.named.base import CLASSES, SIDE, Named, Output, Pooled
from fedfdp.bench.named.text import HEADS, LAYERS, WIDTH, made

IMAGE = {
    **{"image_size": SIDE, "patch_size": 8, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_labels": CLASSES},
    **{"num_attention_heads": HEADS, "intermediate_size": 4 * WIDTH},
}
STAGES = {"depths": [1, 1, 1, 1], "num_labels": CLASSES, "image_size": SIDE}
_SWIN = {**STAGES, "patch_size": 2, "embed_dim": 32, "num_heads": [1, 2, 4, 8], "window_size": 4}
_SOUND = {
    **{"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_labels": CLASSES},
    **{"intermediate_size": 4 * WIDTH, "conv_dim": [32] * 5, "conv_stride": [5, 2, 2, 2, 2]},
    **{"conv_kernel": [10, 3, 3, 3, 2], "num_feat_extract_layers": 5, "num_conv_pos_embeddings": 16},
    **{"num_conv_pos_embedding_groups": 4, "apply_spec_augment": False, "layerdrop": 0.0},
}


def _classifier(kind: str, config: Mapping[str, object]) -> Callable[[], nn.Module]:
    return lambda: Output(made(f"{kind}ForImageClassification", config))


def _poolformer() -> nn.Module:
    sizes = {"hidden_sizes": [16, 32, 64, 128], "patch_sizes": [7, 3, 3, 3], "strides": [4, 2, 2, 2]}
    return Output(made("PoolFormerForImageClassification", {**STAGES, **sizes, "num_encoder_blocks": 4}))


MODELS = {
    "ViT": _classifier("ViT", IMAGE),
    "DeiT": _classifier("DeiT", IMAGE),
    "BEiT": _classifier("Beit", {**IMAGE, "use_relative_position_bias": True}),
    "DINOv2": _classifier("Dinov2", IMAGE),
    "ViT-MSN": _classifier("ViTMSN", IMAGE),
    "Swin": _classifier("Swin", _SWIN),
    "Swin v2": _classifier("Swinv2", _SWIN),
    "ConvNeXt": _classifier("ConvNext", {**STAGES, "hidden_sizes": [16, 32, 64, 128]}),
    "ConvNeXt v2": _classifier("ConvNextV2", {**STAGES, "hidden_sizes": [16, 32, 64, 128]}),
    "PoolFormer": _poolformer,
    "PVT": _classifier(
        "Pvt",
        {**STAGES, "hidden_sizes": [16, 32, 64, 128], "num_attention_heads": [1, 2, 4, 8]},
    ),
    "CLIP vision": lambda: Pooled(made("CLIPVisionModel", IMAGE), WIDTH),
    "SigLIP vision": lambda: Pooled(made("SiglipVisionModel", IMAGE), WIDTH),
}
SOUND = {
    "Wav2Vec2": lambda: Output(made("Wav2Vec2ForSequenceClassification", _SOUND)),
    "HuBERT": lambda: Output(made("HubertForSequenceClassification", _SOUND)),
}
SEEN = [
    *(Named("transformers", name, make, kind="image") for name, make in MODELS.items()),
    *(Named("transformers", name, make, kind="sound") for name, make in SOUND.items()),
]
