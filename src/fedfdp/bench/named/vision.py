"""Models of timm and torchvision. Those with BatchNorm have it replaced by GroupNorm, as `fedfdp models check` says."""

from collections.abc import Callable

from torch import nn

from fedfdp.bench.named.base import CLASSES, SIDE, Named, declared


def _groups(channels: int) -> nn.Module:
    return nn.GroupNorm(next(n for n in (8, 4, 2, 1) if channels % n == 0), channels)


def without_batch_norm(model: nn.Module) -> nn.Module:
    """The model with GroupNorm in the place of every BatchNorm."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.modules.batchnorm._BatchNorm):
                act = getattr(child, "act", None)  # timm puts the activation into its norm layer
                norm = _groups(child.num_features)
                setattr(parent, name, norm if act is None else nn.Sequential(norm, act))
    return model


def _timm(name: str, **options: object) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        declared()
        import timm

        return without_batch_norm(timm.create_model(name, num_classes=CLASSES, **options))

    return make


def _torchvision(name: str, **options: object) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        declared()
        import torchvision

        return without_batch_norm(getattr(torchvision.models, name)(num_classes=CLASSES, **options))

    return make


_SIZED = {"img_size": SIDE}
_TINY = {"embed_dim": 96, "depth": 2, "patch_size": 8, **_SIZED}
_STAGED = {"embed_dim": 32, "depths": (1, 1, 1, 1), "num_heads": (1, 2, 4, 8)}
TIMM: dict[str, Callable[[], nn.Module]] = {
    "vit_tiny": _timm("vit_tiny_patch16_224", **{**_TINY, "num_heads": 3}),
    "deit_tiny_distilled": _timm("deit_tiny_distilled_patch16_224", **{**_TINY, "num_heads": 3}),
    "beit": _timm("beit_base_patch16_224", **{**_TINY, "num_heads": 3}),
    "beitv2": _timm("beitv2_base_patch16_224", **{**_TINY, "num_heads": 3}),
    "eva02_tiny": _timm("eva02_tiny_patch14_224", **{**_TINY, "num_heads": 3}),
    "swin_tiny": _timm("swin_tiny_patch4_window7_224", **_SIZED, **_STAGED, window_size=4, patch_size=2),
    "cait": _timm("cait_xxs24_224", **{**_TINY, "num_heads": 3}),
    "convnext": _timm("convnext_tiny", dims=(16, 32, 64, 128), depths=(1, 1, 1, 1)),
    "resnet18": _timm("resnet18"),
    "xcit": _timm("xcit_nano_12_p16_224", **{**_TINY, "num_heads": 3, "patch_size": 16}),
    "mobilenetv3_small": _timm("mobilenetv3_small_100"),
    "nfnet": _timm("nf_resnet26"),
}  # fmt: skip
TORCHVISION: dict[str, Callable[[], nn.Module]] = {
    "resnet18": _torchvision("resnet18"),
    "vgg11": _torchvision("vgg11"),
    "alexnet": _torchvision("alexnet"),
    "squeezenet1_1": _torchvision("squeezenet1_1"),
    "mobilenet_v2": _torchvision("mobilenet_v2"),
    "shufflenet_v2": _torchvision("shufflenet_v2_x0_5"),
    "densenet": lambda: _torchvision_densenet(),
    "efficientnet_b0": _torchvision("efficientnet_b0"),
    "vit": lambda: _torchvision_vit(),
    "swin": lambda: _torchvision_swin(),
}


def _torchvision_densenet() -> nn.Module:
    declared()
    from torchvision.models import DenseNet

    return without_batch_norm(DenseNet(block_config=(2, 2, 2, 2), num_classes=CLASSES))


def _torchvision_vit() -> nn.Module:
    declared()
    from torchvision.models import VisionTransformer

    model: nn.Module = VisionTransformer(SIDE, 8, 2, 4, 128, 512, num_classes=CLASSES)
    nn.init.normal_(model.heads.head.weight, std=0.1)  # type: ignore[union-attr, arg-type]  # starts at zero
    return model


def _torchvision_swin() -> nn.Module:
    declared()
    from torchvision.models import SwinTransformer

    model: nn.Module = SwinTransformer([2, 2], 32, [1, 1, 1], [1, 2, 4], [4, 4], num_classes=CLASSES)
    return model


VISION = [
    *(Named("timm", name, make, kind="image") for name, make in TIMM.items()),
    *(Named("torchvision", name, make, kind="image") for name, make in TORCHVISION.items()),
]
