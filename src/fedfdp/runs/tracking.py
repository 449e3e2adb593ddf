"""A run's measures to TensorBoard or MLflow while it goes on. Both are optional; the run folder needs neither."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedfdp.core.errors import SettingError, nearest
from fedfdp.runs.session import Update

KINDS = ("tensorboard", "mlflow")
MODULES = {"tensorboard": "torch.utils.tensorboard", "mlflow": "mlflow"}
Track = Callable[[Update], None]


def check_tracking(kind: str | None) -> None:
    """Raises before a run starts where its log could not be written."""
    if kind is None:
        return
    if kind not in KINDS:
        raise SettingError("--log", kind, nearest(kind, KINDS))
    try:
        importlib.import_module(MODULES[kind])
    except ImportError:
        raise SettingError("--log", kind, f"{kind} is not installed", f"pip install 'fedfdp[{kind}]'") from None


@contextmanager
def tracker(kind: str | None, root: Path, name: str, settings: dict[str, Any]) -> Iterator[Track]:
    """What to call with every update of the run `name`; TensorBoard's and MLflow's files lie below `root`."""
    if kind is None:
        yield lambda update: None
        return
    check_tracking(kind)
    module = importlib.import_module(MODULES[kind])
    if kind == "tensorboard":
        with module.SummaryWriter(str(root / "tensorboard" / name)) as writer:
            yield _each(lambda measure, value, round: writer.add_scalar(measure, value, round))
        return
    if not module.is_tracking_uri_set():
        module.set_tracking_uri(f"sqlite:///{(root / 'mlflow.db').resolve()}")
    module.set_experiment("fedfdp")
    with module.start_run(run_name=name):
        module.log_params(flat(settings))
        yield _each(lambda measure, value, round: module.log_metric(measure, value, step=round))


def measures(entry: dict[str, Any]) -> dict[str, float]:
    """The plain numbers of one evaluation: without the round and without the single clients."""
    return {name: v for name, v in entry.items() if name not in ("round", "clients") and isinstance(v, int | float)}


def flat(settings: dict[str, Any], above: str = "") -> dict[str, Any]:
    """Nested settings as section.setting: value, for showing around: without the hash of the files.

    Whoever knows all records but one could try that one against it.
    """
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= flat(value, f"{above}{name}.") if isinstance(value, dict) else {above + name: value}
    found.pop("data.content", None)
    return found


def _each(log: Callable[[str, float, int], Any]) -> Track:
    def track(update: Update) -> None:
        if update.step.evaluation is not None and update.history:
            entry = update.history[-1]
            for name, value in measures(entry).items():
                log(name, value, entry["round"])

    return track
