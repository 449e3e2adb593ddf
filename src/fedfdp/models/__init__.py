"""Models by name, by import path, or any `nn.Module`. Building one never touches torch's global random state."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial

import torch
from torch import nn

from fedfdp.core.errors import FedFDPError, SettingError, nearest, require
from fedfdp.core.importing import imported
from fedfdp.core.settings import left_out
from fedfdp.core.trees import Form, blank, call, is_plain
from fedfdp.models.adapters import Lora, with_adapters
from fedfdp.models.outputs import entry_of, unwrapped
from fedfdp.models.pretrained import PREFIX, check_inputs, from_folder
from fedfdp.models.tasks import Task
from fedfdp.models.zoo import LEAST_IMAGE, head_cnn, linear, mlp, paper_cnn, small_cnn
from fedfdp.privacy.clipping.modules import named_layers
from fedfdp.privacy.clipping.undo import changes_undone

MODELS: dict[str, Callable[..., nn.Module]] = {
    "paper-cnn": paper_cnn,
    "small-cnn": small_cnn,
    "mlp": mlp,
    "linear": linear,
    "head-cnn": head_cnn,
}


@dataclass(frozen=True)
class Model:
    """What is trained: a built-in model by name, or `package.module:Class` with its arguments."""

    name: str = None  # type: ignore[assignment]  # fedfdp models list shows them; hf:FOLDER; left out: cnn or linear
    arguments: dict[str, object] = field(default_factory=dict)  # of the model's function or class
    trainable: tuple[str, ...] | None = None  # layers such as "head": the rest is frozen; None: as the model comes
    own: tuple[str, ...] | None = None  # layers or parameters that never leave a holder, such as "head.*"
    lora: Lora | None = None  # adapters that are trained instead of its layers; trainable: layers beside them
    output: str | None = None  # the entry of what the model gives that counts, such as logits; None: all, or logits
    widths: dict[str, float] | None = None  # by holder, the part of the full model's width that it has; others: all

    def __post_init__(self) -> None:
        for name, width in (self.widths or {}).items():
            fix = "0.5 is half of the channels and hidden units"
            require(0 < width <= 1, f"model.widths.{name}", width, "above 0, at most 1", fix)

    def fitted(self, input_shape: tuple[int, ...], *, tokens: bool = False) -> "Model":
        """The same with a name: for images the small CNN, for other records the linear model, started at 0."""
        if not left_out(self, "name"):
            return self
        if len(input_shape) == 3 and min(input_shape[1:]) >= LEAST_IMAGE and not tokens:
            return replace(self, name="small-cnn")
        return replace(self, name="linear", arguments={"zero": True, **self.arguments})

    def build(
        self,
        *,
        input_shape: tuple[int, ...],
        outputs: int,
        seed: int,
        width: float = 1.0,
        task: Task | None = None,
    ) -> nn.Module:
        """The model for such records, initialised from the seed; a narrower one with a width below 1."""
        named = self.fitted(input_shape)
        return build(
            named.name,
            input_shape=input_shape,
            outputs=outputs,
            seed=seed,
            arguments=named.arguments if width == 1 else {**named.arguments, "width": named._checked(width)},
            trainable=named.trainable,
            task=task,
            lora=named.lora,
        )

    def _checked(self, width: float) -> float:
        if _pretrained(self.name):
            raise SettingError("model.widths", width, f"{self.name} has one width", "leave widths out")
        factory = imported(self.name, "model.name", "Class") if ":" in self.name else MODELS.get(self.name)
        if factory is not None and "width" not in inspect.signature(factory).parameters:
            allowed = f"{self.name} takes no width"
            raise SettingError("model.widths", width, allowed, "take a model whose function has an argument width")
        return width


def build(
    name: str,
    *,
    input_shape: tuple[int, ...],
    outputs: int,
    seed: int,
    arguments: Mapping[str, object] | None = None,
    trainable: Sequence[str] | None = None,
    task: Task | None = None,
    lora: Lora | None = None,
) -> nn.Module:
    """The model of that name for such records, or the one at `package.module:Class`, or in the folder of `hf:FOLDER`.

    What it draws comes from the seed.

    With `trainable`, names of layers or parameters where `*` stands for anything, the rest is frozen. With `lora` they
    are layers that are trained beside the adapters.
    """
    arguments = arguments or {}
    factory: Callable[..., nn.Module] | None = MODELS.get(name)
    if _pretrained(name):
        factory = partial(from_folder, name, outputs=outputs, task=task)
    elif ":" in name:
        factory = imported(name, "model.name", "Class")
    if factory is None:
        raise SettingError("model.name", name, nearest(name, MODELS), "or package.module:Class, or hf:FOLDER")
    known = {} if ":" in name else {"input_shape": input_shape, "outputs": outputs}
    try:
        inspect.signature(factory).bind(**known, **arguments)
    except TypeError as error:
        takes = [p for p in inspect.signature(factory).parameters if p not in known]
        allowed = f"{name} {error}; it takes {', '.join(takes) or 'none'}"
        raise SettingError("model.arguments", arguments, allowed) from None
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        try:
            model = factory(**known, **arguments)
        except FedFDPError:
            raise
        except Exception as error:  # whatever the user's own code raises
            reason = (str(error).splitlines() or [""])[0]
            allowed = f"cannot be made with {arguments}: {type(error).__name__}: {reason}"
            raise SettingError("model.name", name, allowed, "check model.arguments") from error
        if not isinstance(model, nn.Module):
            raise SettingError("model.name", name, f"makes a {type(model).__name__}, not a torch.nn.Module")
        if lora is not None:
            return with_adapters(model, lora, task, trainable or ())
    if trainable is not None:
        freeze_but(model, trainable)
    return model


def _pretrained(name: str) -> bool:
    return name.startswith(PREFIX)


def freeze_but(model: nn.Module, patterns: Sequence[str]) -> None:
    """Only the parameters whose name, or whose layer's name, matches a pattern are trained; all others are frozen."""
    names = [name for name, _ in model.named_parameters()]
    for pattern in patterns:
        if not any(_covers(pattern, name) for name in names):
            layers = dict.fromkeys(name.rpartition(".")[0] or name for name in names)
            raise SettingError("model.trainable", pattern, f"matches no parameter; {nearest(pattern, layers)}")
    if not patterns:
        raise SettingError(
            "model.trainable", list(patterns), "nothing is left to train", "name a layer, or leave it out"
        )
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(any(_covers(pattern, name) for pattern in patterns))


def _covers(pattern: str, name: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")


def first_output(model: nn.Module, form: Form, output: str | None = None) -> tuple[tuple[int, ...], str | None]:
    """The shape of the output for two records of this form, and its entry in what the model gives (None: all of it).

    A SettingError if the model takes no such records. `output` is the entry that was declared.
    """
    found, entry = _blank_output(model, form, output)
    return tuple(found.shape), entry


def _blank_output(model: nn.Module, form: Form, output: str | None) -> tuple[torch.Tensor, str | None]:
    check_inputs(model, form)
    modes = [(module, module.training) for module in model.modules()]
    try:
        with changes_undone(named_layers(model)), torch.enable_grad():
            device = next((parameter.device for parameter in model.parameters()), None)
            given = call(model.eval(), blank(form, 2, device))
            entry = entry_of(given, output, type(model).__name__)
            return unwrapped(given, entry), entry
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
        if isinstance(error, FedFDPError):
            raise
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        inputs = ", ".join(f"{leaf.name} {leaf.shape}" for leaf in form)
        records = f"records of shape {form[0].shape}" if is_plain(form) else f"records with the inputs {inputs}"
        fix = "choose another model or reshape the data"
        raise SettingError("model", type(model).__name__, f"cannot take {records}: {reason}", fix) from None
    finally:
        for module, training in modes:
            module.training = training


def check_output(
    model: nn.Module, form: Form, *, outputs: int, task: Task, output: str | None = None
) -> tuple[tuple[int, ...], str | None]:
    """As `first_output`; raises unless the output has one value for each that the task has, and can be trained."""
    found, entry = _blank_output(model, form, output)
    shape = tuple(found.shape)
    if not found.is_floating_point():
        fix = "give a score for each class, not the class"
        raise SettingError("model", type(model).__name__, f"gives whole numbers ({found.dtype})", fix)
    if not found.requires_grad and any(parameter.requires_grad for parameter in model.parameters()):
        allowed = "its outputs have no gradient: nothing but noise would be trained"
        raise SettingError("model", type(model).__name__, allowed, "take detach() and no_grad() out of it")
    if shape[:1] != (2,) or not task.fits(shape, outputs):
        given = f"gives outputs of shape (records, {', '.join(map(str, shape[1:]))})"
        allowed = f"{given}, expected {task.expected(outputs)}"
        raise SettingError("model", type(model).__name__, allowed, "change the last layer")
    return shape, entry
