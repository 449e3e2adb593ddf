"""Adapters (LoRA) for fine-tuning any module: they and a new last layer alone are trained, the rest is never sent."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedfdp.core.errors import SettingError, nearest, require
from fedfdp.core.trees import Form, call, random
from fedfdp.models.outputs import unwrapped
from fedfdp.models.tasks import Task

_KINDS = {"tokens": "TOKEN_CLS", "language": "CAUSAL_LM"}  # peft's names of tasks; SEQ_CLS for the others


@dataclass(frozen=True)
class Lora:
    """Low-rank adapters beside frozen layers (Hu et al., 2022): only they, and what `trainable` names, are trained."""

    rank: int = 8  # of each adapter
    targets: tuple[str, ...] = ()  # names of layers, such as "query" and "value"; none: those that peft takes for it
    alpha: float = 16.0  # adapters count alpha / rank

    def __post_init__(self) -> None:
        require(1 <= self.rank <= 1024, "model.lora.rank", self.rank, "from 1 to 1024", "8 is usual")
        require(0 < self.alpha <= 1e4, "model.lora.alpha", self.alpha, "above 0, at most 10000", "16 is usual")


def with_adapters(model: nn.Module, lora: Lora, task: Task | None, beside: Sequence[str]) -> nn.Module:
    """The model, frozen, with adapters at the layers that `lora` names; the layers `beside` them are trained too.

    Of a model of transformers, its new last layer is trained in any case.
    """
    try:
        import peft
    except ImportError:
        raise SettingError(
            "model.lora", lora.rank, "needs peft, which is not installed", "pip install 'fedfdp[hf]'"
        ) from None
    aim = task.name if task is not None else "classification"
    known = hasattr(model, "save_pretrained")  # to peft: a model of transformers
    if not known and not lora.targets:
        fix = f"name some of {', '.join(_linear(model))}"
        raise SettingError("model.lora.targets", (), f"a {type(model).__name__} needs the names of layers", fix)
    for layer in beside:
        if not any(name == layer or name.endswith(f".{layer}") for name, _ in model.named_modules()):
            layers = [name for name, _ in model.named_children()]
            raise SettingError("model.trainable", layer, f"with lora it names layers; {nearest(layer, layers)}")
    settings = peft.LoraConfig(
        task_type=getattr(peft.TaskType, _KINDS.get(aim, "SEQ_CLS")) if known else None,
        modules_to_save=list(beside) or None,
        r=lora.rank,
        lora_alpha=lora.alpha,
        target_modules=list(lora.targets) or None,
        lora_dropout=0.0,
    )
    try:
        adapted: nn.Module = peft.get_peft_model(model.float(), settings)
    except ValueError as error:
        reason = str(error).strip().splitlines()[0][:200]
        fix = f"name some of {', '.join(_linear(model))}"
        raise SettingError("model.lora.targets", lora.targets, reason, fix) from None
    return adapted


def _linear(model: nn.Module) -> list[str]:
    """The names of layers that adapters can be put beside."""
    return sorted({name.rpartition(".")[2] for name, part in model.named_modules() if isinstance(part, nn.Linear)})


def adapters_of(names: Mapping[str, object]) -> list[str]:
    """The parameters that belong to adapters, by their names."""
    return [name for name in names if "lora_" in name or "adapter" in name]


def check_reached(model: nn.Module, form: Form, output: str | None) -> None:
    """Raises if an adapter has no part in what the model gives: it would be trained on nothing but noise.

    Judged on made-up records and at made-up weights, since an adapter that starts at zero hides the other half of it.
    """
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    adapters = adapters_of(trained)
    if not adapters:
        return
    chance = torch.Generator().manual_seed(0)
    before = {name: trained[name].data for name in adapters}
    mode = model.training
    try:
        for name in adapters:
            drawn = torch.randn(before[name].shape, generator=chance)
            trained[name].data = before[name] + 0.05 * drawn.to(before[name])
        given = unwrapped(call(model.eval(), random(form, 2, chance)), output)
        found = torch.autograd.grad(given.square().sum(), [trained[name] for name in adapters], allow_unused=True)
    finally:
        for name in adapters:
            trained[name].data = before[name]
        model.train(mode)
    idle = [n for n, gradient in zip(adapters, found, strict=True) if gradient is None or not bool(gradient.any())]
    if idle:
        allowed = f"{len(idle)} of {len(adapters)} adapters have no part in what the model gives, such as {idle[0]}"
        raise SettingError("model.lora", len(adapters), allowed, "name other layers in targets, or freeze these")


def told_of_moves(start: Mapping[str, Tensor], now: Mapping[str, Tensor]) -> str:
    """In words, which adapters have moved since the start; empty where there are none."""
    adapters = adapters_of(start)
    still = [name for name in adapters if torch.equal(start[name], now[name])]
    if not adapters:
        return ""
    if not still:
        return f"all {len(adapters)} adapters have moved"
    few = f"{len(still)} of {len(adapters)} adapters have not moved, such as {still[0]}"
    why = "their gradients are too small for their numbers to change (a larger lr or alpha helps)"
    return f"{few}: {why}, or the run trains another copy"
