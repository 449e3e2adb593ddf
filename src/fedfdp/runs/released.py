"""The model of a finished run, for use elsewhere: loaded, or written to a file that needs no fedfdp.

It reads the released weights only, and whatever is done with them costs no privacy.
"""

import copy
import importlib
import importlib.util
import inspect
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from fedfdp.core.errors import RunError, SettingError, nearest
from fedfdp.core.settings import parse
from fedfdp.core.trees import Form, Inputs, Leaf, arguments_of, call, random
from fedfdp.features import Features, as_map, shape_after, whole
from fedfdp.features.mapped import digest_of
from fedfdp.models import Model, build
from fedfdp.models.outputs import unwrapped
from fedfdp.models.tasks import find_task, task_for
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
        aim = find_task(task["name"]) if "name" in task else task_for(task["classes"])
        width = (wanted.widths or {}).get(holder or "", 1.0)
        model = wanted.build(input_shape=inner, outputs=task["outputs"], seed=0, width=width, task=aim)
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


def export(run: Path, file: Path, model: nn.Module | None = None) -> None:
    """Writes the model of a run in the format that the file's ending names, then reads it back and compares."""
    write = _WRITERS.get(file.suffix)
    if write is None:
        raise SettingError("--out", str(file), f"must end in one of {', '.join(SUFFIXES)}")
    folder = RunFolder.find(run)
    task = task_of(folder)
    net, x = load(run, model), random(form_in(task), 3, torch.Generator().manual_seed(0))
    try:
        answer = write(_with_output(net, task.get("output")), x, file, folder)
    except OSError as error:
        raise RunError(f"{file} cannot be written: {error.strerror or error}; give another --out") from None
    for records in (x, x[:1]):
        with torch.inference_mode():
            right, found = unwrapped(call(net, records), task.get("output")), call(answer, records)
        if not bool(((found - right).abs() <= AGREE * right.abs().max() + NEAR_ZERO).all()):
            file.unlink(missing_ok=True)
            raise RunError(f"{file} would not give what the model gives; export it as .safetensors")


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


def _with_output(model: nn.Module, output: str | None) -> nn.Module:
    """The model without the entries of its answer that do not count."""
    if output is not None:
        model = copy.deepcopy(model)
        model.register_forward_hook(lambda _, __, given: unwrapped(given, output))
    return model


Answer = Callable[..., Any]  # what the written model gives, called as the model is


def _as_safetensors(model: nn.Module, x: Inputs, file: Path, folder: RunFolder) -> Answer:
    """The weights; the header says which model they are of, and what they cost in privacy."""
    summary, settings = folder.summary(), folder.config()
    kept = {name: summary.get(name) for name in ("algorithm", "epsilon", "delta", "rounds", "data", "task")}
    parts = {name: settings[name] for name in ("features",) if name in settings}
    header = {"fedfdp": json.dumps({**kept, "model": settings.get("model", {}), **parts})}
    weights = {name: t.clone(memory_format=torch.contiguous_format) for name, t in model.state_dict().items()}
    file.write_bytes(safetensors.torch.save(weights, metadata=header))
    return model


def _as_torchscript(model: nn.Module, x: Inputs, file: Path, folder: RunFolder) -> Answer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript warns that it is deprecated
        with _explained(file):
            given, named = arguments_of(x)
            how = {"example_kwarg_inputs": named} if named else {"example_inputs": given}
            traced = torch.jit.trace(model, **how, check_trace=False)  # type: ignore[no-untyped-call]
        file.write_bytes(b"")  # if the place cannot be written, this raises an OSError, where TorchScript crashes
        torch.jit.save(traced, file)
        read: Answer = torch.jit.load(file)  # type: ignore[no-untyped-call]
    return read


def _as_exported(model: nn.Module, x: Inputs, file: Path, folder: RunFolder) -> Answer:
    with _explained(file):
        given, named = arguments_of(x)
        program = torch.export.export(model, given, named, dynamic_shapes=_growing(model, x))
    file.write_bytes(b"")
    torch.export.save(program, file)
    return torch.export.load(file).module()


def _as_onnx(model: nn.Module, x: Inputs, file: Path, folder: RunFolder) -> Answer:
    for package in ("onnx", "onnxscript"):
        if importlib.util.find_spec(package) is None:
            fix = "pip install onnx onnxscript, or take .pt2"
            raise SettingError("--out", str(file), f"needs {package}, which is not installed", fix)
    with warnings.catch_warnings(), _explained(file):
        warnings.simplefilter("ignore")
        given, named = arguments_of(x)
        shapes = _growing(model, x)
        program = torch.onnx.export(model, given, kwargs=named, dynamic_shapes=shapes, dynamo=True, verbose=False)
    assert program is not None
    file.write_bytes(b"")
    program.save(str(file))
    return _onnx_answer(file) or model


def _onnx_answer(file: Path) -> Answer | None:
    """What the file computes; None if onnxruntime is not installed."""
    try:
        runtime = importlib.import_module("onnxruntime")
    except ImportError:
        return None
    session = runtime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    inputs = [given.name for given in session.get_inputs()]

    def answer(*given: Tensor, **named: Tensor) -> Tensor:
        arrays = [tensor.numpy() for tensor in (*given, *named.values())]
        return torch.from_numpy(session.run(None, dict(zip(inputs, arrays, strict=True)))[0])

    return answer


def _growing(model: nn.Module, x: Inputs) -> Any:
    """That the number of records may vary, in the arrangement of the model's arguments."""
    records = {0: torch.export.Dim("records")}
    given, named = arguments_of(x)
    bound = inspect.signature(model.forward).bind(*given, **named).arguments
    return torch.utils._pytree.tree_map_only(Tensor, lambda _: records, dict(bound))


@contextmanager
def _explained(file: Path) -> Iterator[None]:
    """Turns whatever an exporter raises for a model that it cannot write into one line."""
    try:
        yield
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        what = f"torch cannot write this model as {file.suffix}: {reason}"
        raise RunError(f"{file}: {what}; take .safetensors") from None


_WRITERS: dict[str, Callable[[nn.Module, Inputs, Path, RunFolder], Answer]] = {
    ".safetensors": _as_safetensors,
    ".pt": _as_torchscript,
    ".pt2": _as_exported,
    ".onnx": _as_onnx,
}
