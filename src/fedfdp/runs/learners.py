"""What a run computes with: the device, the threads, and the learners of clients whose model differs."""

import copy
import os
from collections.abc import Callable, Mapping

import torch
from torch import nn

from fedfdp.algorithms import Algorithm
from fedfdp.algorithms.parts import Parts, check_nested
from fedfdp.core import weights
from fedfdp.core.errors import SettingError, nearest
from fedfdp.data import Federation
from fedfdp.models import check_output
from fedfdp.models.learner import Learner
from fedfdp.models.losses import LossFunction
from fedfdp.models.trial import check_task
from fedfdp.native.threads import cores, forked
from fedfdp.privacy.dpsgd import DPSGD

MOST_THREADS = 16
SMALL_WORK = 4e6  # records of a round times weights


def other_learners(
    given: Mapping[str, nn.Module],
    federation: Federation,
    method: Parts,
    full: nn.Module,
    learner_of: Callable[..., Learner],
    *,
    loss: LossFunction | None,
    output: str | None,
    device: str,
) -> dict[str, Learner]:
    """The learners of clients whose model differs, each checked before the first round."""
    shared = method.shared({name: p for name, p in full.named_parameters() if p.requires_grad})
    for name in federation.names:
        part = federation.part(name)
        fits = (part.input_shape, part.outputs) == (federation.input_shape, federation.outputs)
        if not fits and name not in given:
            shape = f"{name} has records of shape {part.input_shape} and {part.outputs} outputs"
            raise SettingError("models", list(given), f"{shape}, others {federation.input_shape}", "give its model too")
    found = {}
    for name, model in given.items():
        if name not in federation.names:
            raise SettingError("models", name, f"no such client; {nearest(name, federation.names)}")
        part, model = federation.part(name), copy.deepcopy(model)
        task = part.task
        given_shape, entry = check_output(model, part.form, outputs=part.outputs, task=task, output=output)
        check_task(task, part.y, given_shape, loss, device=device)
        found[name] = learner_of(model, loss or task.loss, task=task, output=entry)
        check_nested(name, method.shared(found[name].initial()), shared)
    return found


def available(name: str) -> str:
    """The device of that name, if it is here; `auto` is a GPU where there is one."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError):
        raise SettingError("device", name, "there is no such device here", "take cpu or auto") from None
    return name


def default_threads() -> int:
    """One per core of this process, up to where small batches stop gaining; OMP_NUM_THREADS has the last word."""
    if "OMP_NUM_THREADS" in os.environ or forked():
        return torch.get_num_threads()
    return min(cores(), MOST_THREADS)


def threads_for(learner: Learner, federation: Federation, algorithm: Algorithm, privacy: DPSGD | None) -> int:
    """One for a small model on small batches, where waiting for each other costs threads more than they save."""
    records = privacy.q * int(federation.held("train").counts.sum()) if privacy else algorithm.batch_size
    return 1 if records * weights.size(learner.initial()) < SMALL_WORK else default_threads()
