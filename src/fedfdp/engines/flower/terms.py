"""The settings a coordinator proposes to the nodes: method, privacy, model. Parsed only after the node's policy agreed.

A name with a colon is imported only if the node's owner listed it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
from torch import nn

from fedfdp import algorithms
from fedfdp.algorithms import Algorithm, algorithm_settings
from fedfdp.core.errors import SettingError
from fedfdp.core.records import digest
from fedfdp.core.settings import left_out, parse, plain
from fedfdp.core.trees import Form
from fedfdp.core.trees import random as made_up
from fedfdp.data import Federation
from fedfdp.fairness.coefficients import PlainClip
from fedfdp.features import Features, form_after
from fedfdp.models import Model, check_output, first_output
from fedfdp.models.learner import Learner
from fedfdp.models.trial import check_task
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.training.protocols import Members

T = TypeVar("T")


@dataclass(frozen=True)
class Terms:
    """What rounds are to be computed with. `seed` is None in every real deployment."""

    algorithm: dict[str, object]
    model: dict[str, object]
    privacy: dict[str, object] | None
    seed: int | None
    start: int = 0  # the seed of the model's first weights, which matters where some of them are frozen
    features: dict[str, object] | None = None  # the map that every node applies to its records first; None: none
    frozen: str = ""  # the digest of what is not trained: that is not sent, and both sides must have the same

    def __post_init__(self) -> None:
        if not 0 <= self.start < 2**63:
            raise SettingError("terms.start", self.start, "from 0 to 2^63 − 1")

    @classmethod
    def of(
        cls,
        algorithm: Algorithm,
        model: Model,
        privacy: DPSGD | None,
        seed: int,
        *,
        seeded: bool,
        features: Features | None = None,
    ) -> "Terms":
        """What is proposed for a run; with `seeded` its seed decides batches and noise, too."""
        private = None if privacy is None else plain(privacy)
        if private is not None:
            private.pop("budgets", None)  # what others may spend is not this node's business
        mapped = None if features is None else plain(features)
        return cls(algorithm_settings(algorithm), plain(model), private, seed if seeded else None, seed, mapped)

    @classmethod
    def read(cls, text: str) -> "Terms":
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            fix = "coordinator and node must run the same version"
            raise SettingError("terms", text[:40], "not JSON", fix) from None
        return parse(cls, values, "terms")

    def to_json(self) -> str:
        values = {name: value for name, value in vars(self).items() if name != "features" or value is not None}
        return json.dumps(values, sort_keys=True)

    def method(self) -> Algorithm:
        section = dict(self.algorithm)
        kind = algorithms.find(str(section.pop("name", "")))
        return _whole(parse(kind, section, "algorithm"), "algorithm", ("lr",))

    def dpsgd(self) -> DPSGD | None:
        if self.privacy is None:
            return None
        return _whole(parse(DPSGD, self.privacy, "privacy"), "privacy", ("delta", "sigma", "q", "clip", "sigma_loss"))

    def front(self) -> nn.Module | None:
        """The map before the model; None without features."""
        return None if self.features is None else parse(Features, self.features, "features").build()


def _whole(settings: T, section: str, names: Sequence[str]) -> T:
    """The settings, if all that a coordinator has to state is there: nothing is chosen at a node."""
    for name in names:
        if left_out(settings, name):
            raise SettingError(f"{section}.{name}", None, "missing in the terms", "the coordinator must state it")
    return settings


def build_model(
    model: dict[str, object], members: Members, front: nn.Module | None = None, *, seed: int, width: float = 1.0
) -> nn.Module:
    """The model of these terms, for records as the members have them; trained weights come with each broadcast."""
    form, wanted = _form(members, front), parse(Model, model, "model")
    made = wanted.build(input_shape=form[0].shape, outputs=members.outputs, seed=seed, width=width, task=members.task)
    shape, _ = check_output(made, form, outputs=members.outputs, task=members.task, output=wanted.output)
    if isinstance(members, Federation):
        check_task(members.task, torch.zeros_like(members.y[:2]), shape)
    return made


def _form(members: Members, front: nn.Module | None) -> Form:
    """Of what the model takes: a record, or its features."""
    return members.form if front is None else form_after(front, members.form)


def check_size(
    model: dict[str, object], members: Members, front: nn.Module | None = None, *, most: int, width: float = 1.0
) -> None:
    """Raises for a built-in model of more than `most` weights, before any memory is taken for them."""
    wanted = _whole(parse(Model, model, "model"), "model", ("name",))
    if ":" in wanted.name:
        return
    shape = _form(members, front)[0].shape
    with torch.device("meta"):
        whole = replace(wanted, trainable=None)
        made = whole.build(input_shape=shape, outputs=members.outputs, seed=0, width=width)
    found = sum(parameter.numel() for parameter in made.parameters())
    if found > most:
        raise SettingError("model.arguments", wanted.arguments, f"{found:,} weights, the node allows {most:,}")


def try_out(learner: Learner, privacy: DPSGD, federation: Federation, front: nn.Module | None = None) -> None:
    """Tries the private step on made-up records: raises where it cannot take the model, before a real one is read."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        x = made_up(_form(federation, front), 3, torch.default_generator)
        y = torch.zeros(3, *federation.y.shape[1:], dtype=federation.y.dtype)
        learner.clipped(learner.initial(), x, y, PlainClip(privacy.clip))


def frozen_digest(model: nn.Module) -> str:
    """A digest of frozen parameters and buffers: equal if and only if they are."""
    frozen = {name: p.detach() for name, p in model.named_parameters() if not p.requires_grad}
    return digest(frozen, dict(model.named_buffers()))


def learner_of(
    model: nn.Module,
    members: Members,
    front: nn.Module | None = None,
    *,
    device: str = "cpu",
    in_parts: bool = False,
    output: str | None = None,
) -> Learner:
    """The learner of a model for these members' task."""
    _, entry = first_output(model, _form(members, front), output)
    return Learner(model, members.task.loss, device=device, in_parts=in_parts, task=members.task, output=entry)
