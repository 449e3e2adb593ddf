"""A run's metrics to TensorBoard or MLflow while it goes on. Both are optional; the run folder needs neither."""

import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fedfdp.core.errors import SettingError, nearest
from fedfdp.fairness.metrics.registry import RESERVED
from fedfdp.runs.session import Update

KINDS = ("tensorboard", "mlflow")
MODULES = {"tensorboard": "torch.utils.tensorboard", "mlflow": "mlflow"}
Track = Callable[[Update], None]
_FOREIGN = re.compile(r"[^\w\-. ]")


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
def tracker(kind: str | None, root: Path, name: str, settings: Mapping[str, object]) -> Iterator[Track]:
    """Gives a function to call with every update of the run `name`; the files of either library lie below `root`."""
    if kind is None:
        yield lambda update: None
        return
    check_tracking(kind)
    module = importlib.import_module(MODULES[kind])
    if kind == "tensorboard":
        with module.SummaryWriter(str(root / "tensorboard" / name)) as writer:
            yield _each(lambda metric, value, round: writer.add_scalar(metric, value, round))
        return
    if not module.is_tracking_uri_set():
        module.set_tracking_uri(f"sqlite:///{(root / 'mlflow.db').resolve()}")
    module.set_experiment("fedfdp")
    with module.start_run(run_name=name):
        module.log_params(flat(settings))
        yield _each(lambda metric, value, round: module.log_metric(metric, value, step=round))


def numbers(entry: Mapping[str, object]) -> dict[str, float]:
    """The metrics of one evaluation that have a value, without those of single clients."""
    return {name: v for name, v in entry.items() if name not in RESERVED and isinstance(v, int | float)}


def flat(settings: Mapping[str, object], above: str = "") -> dict[str, object]:
    """Nested settings as section.setting: value, without the hash of the data's files, so that they can be shown.

    Whoever knows all records but one could check guesses of that one against the hash.
    """
    found: dict[str, object] = {}
    for name, value in settings.items():
        found |= flat(value, f"{above}{name}.") if isinstance(value, dict) else {above + name: value}
    found.pop("data.content", None)
    return found


def recalls(entry: Mapping[str, object]) -> dict[str, float]:
    """The recall of each class that has one, as `recall/NAME`; signs that a tracker may not take become `_`."""
    classes = entry.get("classes")
    if not isinstance(classes, Mapping):
        return {}
    named = zip(classes["names"], classes["recall"], strict=True)
    return {f"recall/{_FOREIGN.sub('_', name)}": value for name, value in named if value is not None}


def _each(log: Callable[[str, float, int], object]) -> Track:
    def track(update: Update) -> None:
        if update.step.evaluation is not None and update.history:
            entry = update.history[-1]
            for name, value in (numbers(entry) | recalls(entry)).items():
                log(name, value, entry["round"])

    return track
