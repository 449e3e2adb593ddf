"""The model of a finished run written to a file that needs no fedfdp, read back and compared.

Compared on made-up records, and on records of a file that is given; nothing of these is kept.
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
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from fedfdp.core.errors import RunError, SettingError
from fedfdp.core.trees import Form, Inputs, arguments_of, call, like, parts_of, random
from fedfdp.models.outputs import unwrapped
from fedfdp.models.pretrained import check_words
from fedfdp.runs.folder import RunFolder
from fedfdp.runs.predict import records_of
from fedfdp.runs.released import form_in, load, task_of

SUFFIXES = (".safetensors", ".pt", ".pt2", ".onnx")
AGREE = 1e-4  # by how much an exported model may differ, relative to its largest output
NEAR_ZERO = 1e-6  # … and in any case: a model may give zeros only
FEW, MOST = 3, 64  # records that are made up, and that are taken from a file


def export(run: Path, file: Path, model: nn.Module | None = None, records: Path | None = None) -> None:
    """Writes the model of a run in the format that the file's ending names, then reads it back and compares.

    `records` is a file like those that the run was trained on: the first ones in it are compared too.
    """
    write = _WRITERS.get(file.suffix)
    if write is None:
        raise SettingError("--out", str(file), f"must end in one of {', '.join(SUFFIXES)}")
    folder = RunFolder.find(run)
    task = task_of(folder)
    net = load(run, model)
    x = made_up(net, form_in(task))
    real = None if records is None else records_of(folder, records, task)[0][:MOST]
    check_words(net, x if real is None else real)
    try:
        answer = write(_with_output(net, task.get("output")), x, file, folder)
    except OSError as error:
        raise RunError(f"{file} cannot be written: {error.strerror or error}; give another --out") from None
    for some in (x, x[:1], *(() if real is None else (real,))):
        with torch.inference_mode():
            right, found = unwrapped(call(net, some), task.get("output")), call(answer, some)
        if not bool(((found - right).abs() <= AGREE * right.abs().max() + NEAR_ZERO).all()):
            file.unlink(missing_ok=True)
            raise RunError(f"{file} would not give what the model gives; export it as .safetensors")


def made_up(model: nn.Module, form: Form) -> Inputs:
    """Records to compare on: tokens out of the whole table that the model has for them, and masks as of real texts."""
    chance = torch.Generator().manual_seed(0)
    x = random(form, FEW, chance)
    sizes = sorted({part.num_embeddings for part in model.modules() if isinstance(part, nn.Embedding)}, reverse=True)
    for words in sizes:
        parts = [
            _drawn(part, words, chance, mask="mask" in leaf.name or leaf.kind == "bool")
            for leaf, part in zip(form, parts_of(x), strict=True)
        ]
        try:
            with torch.inference_mode():
                call(model, like(x, parts))
        except (IndexError, RuntimeError, ValueError):  # another input has a smaller table
            continue
        return like(x, parts)
    return x


def _drawn(part: Tensor, words: int, chance: torch.Generator, *, mask: bool) -> Tensor:
    if part.is_floating_point() or part.dim() < 2:
        return part
    if not mask:
        return torch.randint(words, part.shape, generator=chance).to(part.dtype)
    lengths = torch.randint(1, part.shape[1] + 1, (len(part), *[1] * (part.dim() - 1)), generator=chance)
    places = torch.arange(part.shape[1]).view(1, -1, *[1] * (part.dim() - 2))
    return (places < lengths).expand_as(part).to(part.dtype)


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
            fix = "pip install 'fedfdp[onnx]', or take .pt2"
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
