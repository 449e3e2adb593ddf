"""Pretrained models out of a local folder, as transformers saves them: nothing is fetched, no code in it is run."""

import inspect
import logging
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedfdp.core.errors import SettingError
from fedfdp.core.trees import Form, Inputs, arguments_of
from fedfdp.models.tasks import Task

log = logging.getLogger("fedfdp")

PREFIX = "hf:"
REMARK = "pretrained weights"  # said beside every number of a model out of a folder
OWN_TOKENIZER = "take the tokenizer in the model's own folder"
HIDDEN = -1e9  # what is added to the attention to a token that is padding
SEQUENCES = "AutoModelForSequenceClassification"
_CLASSES = {
    **dict.fromkeys(("classification", "regression", "multi-label"), SEQUENCES),
    "tokens": "AutoModelForTokenClassification",
    "language": "AutoModelForCausalLM",
}


def _kind_of(name: str, task: Task | None) -> tuple[Any, Path]:
    """The class of transformers for this task, and the folder."""
    try:
        import transformers
    except ImportError:
        fix = "pip install 'fedfdp[hf]'"
        raise SettingError("model.name", name, "needs transformers, which is not installed", fix) from None
    folder = Path(name.removeprefix(PREFIX))
    if not (folder / "config.json").is_file():
        fix = "give the folder that save_pretrained has written; none is fetched"
        raise SettingError("model.name", name, f"no config.json in {folder}", fix)
    aim = task.name if task is not None else "classification"
    if aim not in _CLASSES:
        allowed = f"no model of transformers is taken for {aim}, only for {', '.join(_CLASSES)}"
        raise SettingError("model.name", name, allowed, "give a module of yours: package.module:Class")
    return getattr(transformers, _CLASSES[aim]), folder


def from_folder(name: str, *, outputs: int, task: Task | None) -> nn.Module:
    """The model in the folder of `hf:FOLDER`, for this task and so many outputs; a new last layer is random."""
    kind, folder = _kind_of(name, task)
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    aim = task.name if task is not None else "classification"
    sized = {} if aim == "language" else {"num_labels": outputs, "ignore_mismatched_sizes": True}
    verbosity, bars = transformers.logging.get_verbosity(), transformers.logging.is_progress_bar_enabled()
    transformers.logging.set_verbosity_error()  # it warns of the new last layer, which is meant to be new
    transformers.logging.disable_progress_bar()
    try:
        # Other attentions look whether any mask hides anything, and then compute otherwise for all records.
        model: Any = kind.from_pretrained(folder, local_files_only=True, attn_implementation="eager", **sized)
    except Exception as error:
        raise _unreadable(name, error) from None
    finally:
        transformers.logging.set_verbosity(verbosity)
        if bars:
            transformers.logging.enable_progress_bar()
    if aim == "language" and (words := model.config.vocab_size) != outputs:
        fix = f"set classes = {words}" if outputs < words else f"{OWN_TOKENIZER}, and leave data.classes out"
        other = "" if outputs < words else ": the tokenizer is another model's"
        raise SettingError("model.name", name, f"its words are {words}, the data's {outputs}{other}", fix)
    model.config.use_cache = False
    encoder = model.config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    if _CLASSES[aim] == SEQUENCES and not encoder:
        _answer_by_mask(model)
    elif getattr(model.config, "pad_token_id", None) is None:
        model.config.pad_token_id = 0
    if encoder and aim != "language":
        _mask_by_hand(model)
    made: nn.Module = model.float()
    made.remark = REMARK  # type: ignore[assignment]
    return made


def outline(name: str, task: Task | None) -> nn.Module:
    """The model in the folder of `hf:FOLDER` without its weights."""
    kind, folder = _kind_of(name, task)
    import transformers

    try:
        with torch.device("meta"):
            made: nn.Module = kind.from_config(transformers.AutoConfig.from_pretrained(folder, local_files_only=True))
    except Exception as error:
        raise _unreadable(name, error) from None
    return made


def _unreadable(name: str, error: Exception) -> SettingError:
    """Whatever transformers raises for a folder that it cannot read, in one line."""
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
    return SettingError("model.name", name, f"cannot be read: {reason}", "save_pretrained writes such a folder")


def remark_of(model: nn.Module) -> str:
    """What a model says of itself beside every number: its attribute `remark`, such as "public pretraining"."""
    found = getattr(model, "remark", "")
    return found if isinstance(found, str) else ""


def _mask_by_hand(model: nn.Module) -> None:
    """Lets an encoder take its mask as what is added to attention, record by record.

    From a mask of zeros and ones it looks whether any record hides anything, and computes otherwise for all if none
    does. Per-record gradients could then be had in a loop only.
    """
    handle = model.register_forward_pre_hook(_added_mask, with_kwargs=True)
    ids = torch.zeros(2, 3, dtype=torch.int64)
    try:
        with torch.no_grad():
            model(input_ids=ids, attention_mask=torch.ones_like(ids))
    except Exception:  # a model that takes no such mask goes the slow way
        log.debug("%s takes no mask of four dimensions", type(model).__name__, exc_info=True)
        handle.remove()


def _added_mask(
    model: nn.Module, given: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    given, named = _by_name(model, given, named)
    mask = named.get("attention_mask")
    if isinstance(mask, Tensor) and mask.dim() == 2:
        named = {**named, "attention_mask": (1.0 - mask[:, None, None, :].float()) * HIDDEN}
    return given, named


def _inputs(model: nn.Module) -> list[str]:
    """The names of what the model takes, in order."""
    takes = inspect.signature(type(model).forward).parameters.values()
    return [parameter.name for parameter in takes if parameter.kind is parameter.POSITIONAL_OR_KEYWORD][1:]


def _by_name(model: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same inputs by name, as far as they have one: those of a tuple come by their place."""
    names = _inputs(model)
    return given[len(names) :], {**dict(zip(names, given, strict=False)), **named}


def _answer_by_mask(model: Any) -> None:
    """Lets a decoder read its answer at the last token that the mask counts, whatever stands at padding.

    It would take the last token that is not its pad token. A tokenizer may pad with another one, and texts may end in
    it, as in the end of a text. So padding becomes the pad token, and nothing else is it: what counts and has its
    number gets a negative one (~n), which the body of the model sees as it was. Places count from the first token.
    """
    config, words = model.config.get_text_config(), model.get_input_embeddings().num_embeddings
    ends = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    config.pad_token_id = next(n for n in (config.pad_token_id, *ends, 0) if n is not None and 0 <= n < words)
    model.register_forward_pre_hook(_padding_marked, with_kwargs=True)
    model.base_model.register_forward_pre_hook(_marks_removed, with_kwargs=True)


def _padding_marked(
    model: Any, given: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    given, named = _by_name(model, given, named)
    ids, mask = named.get("input_ids"), named.get("attention_mask")
    if isinstance(ids, Tensor) and isinstance(mask, Tensor):
        pad = model.config.get_text_config().pad_token_id
        named = {**named, "input_ids": torch.where(mask > 0, torch.where(ids == pad, ~ids, ids), pad)}
        if "position_ids" in _inputs(model) and named.get("position_ids") is None:
            named["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    return given, named


def _marks_removed(
    body: nn.Module, given: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    def seen(value: Any) -> Any:
        return torch.where(value < 0, ~value, value) if getattr(value, "dtype", None) == torch.int64 else value

    return tuple(map(seen, given)), {name: seen(value) for name, value in named.items()}


def _of_transformers(model: nn.Module) -> Any:
    """The model of transformers in it, below adapters; None where its code is not of that library."""
    below: Any = getattr(model, "get_base_model", None)
    base = below() if callable(below) else model
    return base if type(base).__module__.startswith("transformers.") else None


def check_inputs(model: nn.Module, form: Form) -> None:
    """Raises if records have an input that a model of transformers does not name: it would say nothing of it."""
    if (base := _of_transformers(model)) is None:
        return
    takes = inspect.signature(type(base).forward).parameters
    for leaf in form:
        if leaf.name.isidentifier() and leaf.name not in takes:
            fix = "list these columns in data.ignore instead" if leaf.name == "table" else "take a model that does"
            allowed = f"does not use the input {leaf.name}"
            raise SettingError("model", type(base).__name__, allowed, f"{fix}, or give a module of yours")


def check_words(model: nn.Module, x: Inputs) -> None:
    """Raises if records have a token, or a type of token, that a model of transformers has no row for in its table."""
    base = _of_transformers(model)
    if base is None:
        return
    config, (_, named) = base.config.get_text_config(), _by_name(base, *arguments_of(x))
    if getattr(config, "vocab_size", None) is None:
        return  # it takes numbers that are no places in a table
    words = len(base.get_input_embeddings().weight)
    if not _within(named.get("input_ids"), words):
        allowed = f"its table has {words} words, the records have others: their tokenizer is another model's"
        raise SettingError("model", type(base).__name__, allowed, OWN_TOKENIZER)
    types = getattr(config, "type_vocab_size", words)
    if not _within(named.get("token_type_ids"), types):
        allowed = f"its table has {types} types of tokens, the records have others in token_type_ids"
        raise SettingError("model", type(base).__name__, allowed, "leave token_type_ids out")


def _within(numbers: Tensor | None, rows: int) -> bool:
    if numbers is None or numbers.is_floating_point() or not numbers.numel():
        return True
    return 0 <= int(numbers.min()) <= int(numbers.max()) < rows


def save_whole(model: nn.Module, folder: Path) -> None:
    """Writes a model of transformers or peft as such libraries read it: adapters alone, where there are some."""
    if callable(save := getattr(model, "save_pretrained", None)):
        save(folder)
