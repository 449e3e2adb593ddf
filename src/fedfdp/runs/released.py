"""The model of a finished run, for use elsewhere: loaded with its released weights, or with a holder's own.

It reads weights only, and whatever is done with them costs no privacy.
"""

from dataclasses import replace
from pathlib import Path
from typing import NotRequired, TypedDict

import safetensors
import safetensors.torch
from torch import Tensor, nn

from fedfdp.core.errors import RunError, SettingError, nearest
from fedfdp.core.settings import parse
from fedfdp.core.trees import Form, Leaf
from fedfdp.features import Features, as_map, shape_after, whole
from fedfdp.features.mapped import digest_of
from fedfdp.models import Model, build, tasks
from fedfdp.models.tasks import Targets, find_task, task_for
from fedfdp.runs.folder import MODEL, RunFolder

SUFFIXES = (".safetensors", ".pt", ".pt2", ".onnx")
AGREE = 1e-4  # by how much an exported model may differ, relative to its largest output
NEAR_ZERO = 1e-6  # … and in any case: a model may give zeros only


class Task(TypedDict):
    """What a run's model takes and gives."""

    input_shape: list[int]  # of one record
    outputs: int  # how many values it gives for a record
    classes: int | None  # None for regression
    tokens: bool  # whether records are token numbers
    inputs: NotRequired[list[tuple[str, list[int], str]]]  # of records with several: name, shape and kind of each
    name: NotRequired[str]  # of the task, where it is neither one class nor numbers
    targets: NotRequired[Targets]  # of a task of the user's own, as axis and single: see `models.tasks.Task`
    axis: NotRequired[int]
    single: NotRequired[bool]
    output: NotRequired[str]  # the entry of what the model gives that counts


def load(
    run: str | Path,
    model: nn.Module | None = None,
    *,
    features: str | Features | nn.Module | None = None,
    holder: str | None = None,
) -> nn.Module:
    """The trained model of a finished run, in evaluation mode; it takes records as they are, features are part of it.

    Args:
        run: the folder of the run.
        model: needed if the run was started in Python with a module of its own; its weights are replaced.
        features: needed if the run was started in Python with a module as its features.
        holder: whose own model, where the method has personal ones: a client's name, or the file that a node keeps in
            its folder; None: the released model.

    Returns:
        The module with the released weights, or with the holder's.
    """
    folder = RunFolder.find(Path(run))
    task = task_of(folder)
    front = _features(folder, features)
    shape = tuple(task["input_shape"])
    if model is None:
        section = folder.config().get("model")
        if section is None:
            raise RunError(
                f"{run} was trained from Python, on a module of yours; give it: fedfdp.load({str(run)!r}, net), or on "
                "the command line --model package.module:Class"
            )
        wanted = parse(Model, section, "model")
        inner = shape if front is None else shape_after(front, shape)
        width = (wanted.widths or {}).get(holder or "", 1.0)
        model = wanted.build(input_shape=inner, outputs=task["outputs"], seed=0, width=width, task=aim_of(task))
    try:
        model.load_state_dict(read_weights(folder.path / MODEL if holder is None else _own_file(folder, holder)))
    except RuntimeError as error:
        reason = next((line.strip() for line in str(error).splitlines()[1:]), str(error))
        raise RunError(f"{run} holds the weights of another model than {type(model).__name__}: {reason}") from None
    return whole(front, model.eval())


def module_at(path: str | None) -> nn.Module | None:
    """What the class or function at `package.module:Class` makes without arguments; None where no path is given."""
    return None if path is None else build(_path(path), input_shape=(), outputs=0, seed=0)


def _path(path: str) -> str:
    if ":" not in path:
        raise SettingError("--model", path, "no import path", "give package.module:Class")
    return path


def _features(folder: RunFolder, given: str | Features | nn.Module | None) -> nn.Module | None:
    """The features of a run; a RunError where they are missing, or not those that it was trained with."""
    trained_with = folder.summary().get("features")
    if trained_with is None:
        if given is not None:
            raise RunError(f"{folder.path} was trained without features; leave them out")
        return None
    section = folder.config().get("features")
    if given is None and section is None:
        raise RunError(f"{folder.path} was trained with a module as its features; give it: features=…")
    front = as_map(parse(Features, section, "features") if given is None else given)
    if digest_of(front) != folder.identity().get("features"):
        fix = "take the version of fedfdp, torch and Python that it was trained with"
        raise RunError(f"{folder.path} was trained with other features than {trained_with} gives here; {fix}")
    return front


def form_in(task: Task) -> Form:
    """The inputs of a record."""
    if "inputs" not in task:
        return (Leaf("", tuple(task["input_shape"]), "int64" if task["tokens"] else "float32"),)
    return tuple(Leaf(name, tuple(shape), kind) for name, shape, kind in task["inputs"])


def task_of(folder: RunFolder) -> Task:
    """What the run's model takes and gives."""
    task: Task | None = folder.summary().get("task")
    if task is None:
        raise RunError(f"{folder.path} was made by an earlier version, which did not note what its model takes")
    return task


def aim_of(task: Task) -> tasks.Task:
    """What the run's model was trained for. A task of the user's own is not imported: its loss is not asked for."""
    usual = task_for(task["classes"])
    if "targets" in task:
        return replace(usual, name=task["name"], targets=task["targets"], axis=task["axis"], single=task["single"])
    return find_task(task["name"]) if "name" in task else usual


def _own_file(folder: RunFolder, holder: str) -> Path:
    own = folder.own_models()
    if holder in own:
        return own[holder]
    if holder.endswith(".safetensors"):
        return Path(holder)
    if not own:
        method = folder.summary().get("algorithm")
        allowed = f"{folder.path} keeps no models of holders: its method is {method}"
        raise SettingError("--holder", holder, allowed, "leave it out, or give the file that a node keeps")
    raise SettingError("--holder", holder, nearest(holder, own))


def read_weights(path: Path) -> dict[str, Tensor]:
    """Weights that a run released, by parameter name."""
    try:
        return safetensors.torch.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise RunError(f"{path} cannot be read: {error}; run it again elsewhere") from None
