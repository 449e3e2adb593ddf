"""Attacks by a loss that keeps what it has seen of the records, for the next run of the same process.

A run that found it was refused; the next one took what the loss had kept for a constant, and trained with it in every
gradient. Now a loss is tried on made-up targets only, and a refusal of what outlives a model holds for the process.
"""

import functools

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import fedfdp
from fedfdp.core.errors import SettingError
from fedfdp.models.losses import cross_entropy as usual
from fedfdp.models.tasks import TASKS
from fedfdp.models.trial import check_task
from fedfdp.privacy.clipping import state
from fedfdp.runs import config as configs
from fedfdp.runs.store import Store
from fedfdp.runs.sweep import sweep
from per_record import cross_entropy

CLASSES = 5
PRIVACY = {"epsilon": 8.0, "sigma": 2.0, "q": 0.5, "clip": 1.0}


def federation() -> fedfdp.Federation:
    x = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    y = 3 + torch.arange(40) % 2  # no record of classes 0, 1, 2
    return fedfdp.Federation.from_clients({"a": (x[:20], y[:20]), "b": (x[20:], y[20:])}, classes=CLASSES)


def trained(loss, private=True):
    privacy = fedfdp.DPSGD(**PRIVACY) if private else None
    return fedfdp.train(nn.Linear(6, CLASSES), federation(), privacy=privacy, rounds=1, loss=loss)


class Balanced:
    """Weights of classes, from the first targets that have two: it fails on zeros."""

    def __init__(self) -> None:
        self.weight: Tensor | None = None

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        if self.weight is None:
            if len(y.unique()) < 2:
                raise ValueError("needs two classes")
            self.weight = 1 / (1 + torch.bincount(y, minlength=CLASSES).float())
        return cross_entropy(outputs, y) * self.weight[y]


class First:
    """The first class above 1 that it meets: zeros and made-up records have none."""

    def __init__(self) -> None:
        self.kept = 0

    def __call__(self, outputs: Tensor, y: Tensor) -> Tensor:
        if not self.kept and len(higher := y[y > 1]):
            self.kept = int(higher[0])
        return cross_entropy(outputs, y) * (1 + self.kept)


def test_a_loss_that_fails_on_zeros_sees_no_record_when_it_is_tried():
    loss = Balanced()
    with pytest.raises(SettingError, match="changed"):
        trained(loss)
    # 0, 1 and 4 are made up; of the classes of the records, 3 counts as if there were none
    assert loss.weight is not None
    assert loss.weight[3] == 1.0


def test_what_a_refused_loss_has_kept_reaches_no_later_run():
    loss = First()
    for reason in ("the forward pass changes it", "an earlier run in this process has changed it"):
        with pytest.raises(SettingError, match=reason):
            trained(loss)
    with pytest.raises(SettingError, match="start a new process"):  # whatever else of yours may read the same place
        trained(lambda outputs, y: cross_entropy(outputs, y) * loss.kept)
    trained(usual)  # no code of an installed package reads it


def test_what_a_loss_has_kept_of_made_up_targets_spoils_nothing_but_itself():
    loss = Balanced()
    for reason in ("the forward pass changes it", "was changed when it was tried before; make it anew"):
        with pytest.raises(SettingError, match=reason):
            trained(loss)
    trained(cross_entropy)  # a function of this file


def test_nor_does_what_a_loss_keeps_in_a_run_without_privacy():
    trained(cross_entropy, private=False)  # this one keeps nothing
    trained(cross_entropy)
    loss = First()
    trained(loss, private=False)
    assert loss.kept > 2
    with pytest.raises(SettingError, match="an earlier run in this process has changed it"):
        trained(loss)


@pytest.mark.parametrize("way", ["hook", "forward", "argument"])
def test_nor_where_a_function_that_is_put_on_a_layer_reaches_it(way):
    def mean(out: Tensor, y: Tensor, also: object = None) -> Tensor:
        return nn.functional.cross_entropy(out, y, reduction="none")

    def run(model: nn.Module, loss: object = None) -> None:
        fedfdp.train(model, federation(), loss=loss, privacy=fedfdp.DPSGD(**PRIVACY), rounds=1)

    kept = First()
    trained(kept, private=False)
    model, loss = nn.Linear(6, CLASSES), None
    if way == "hook":
        model.register_forward_hook(lambda layer, given, made: made * (1 + kept.kept))
    elif way == "forward":
        usual = model.forward
        model.forward = lambda x: usual(x) * (1 + kept.kept)
    else:
        loss = functools.partial(nn.functional.cross_entropy, reduction="none", weight=None)
        run(nn.Linear(6, CLASSES), loss)  # code of torch's alone does not reach it
        loss = functools.partial(mean, also=lambda: kept.kept)
    with pytest.raises(SettingError, match="an earlier run in this process has changed it"):
        run(model, loss)


def test_nor_what_a_class_keeps_in_a_run_without_privacy():
    class Net(nn.Linear):
        bank: Tensor | None = None

        def forward(self, x: Tensor) -> Tensor:
            if Net.bank is None and len(x) > 5:  # more than it is looked at with before the run
                Net.bank = x.detach().clone()
            return super().forward(x if Net.bank is None else x - Net.bank.mean(0))

    def run(model: nn.Module, private: bool) -> None:
        fedfdp.train(model, federation(), privacy=fedfdp.DPSGD(**PRIVACY) if private else None, rounds=1)

    run(Net(6, CLASSES), False)
    with pytest.raises(SettingError, match=r"model \(Net\) = 'changed': an earlier run in this process"):
        run(Net(6, CLASSES), True)


@pytest.mark.parametrize(
    "loss",
    [
        functools.partial(functional.cross_entropy, reduction="none"),
        nn.CrossEntropyLoss(reduction="none", weight=torch.ones(CLASSES)),
    ],
)
def test_usual_losses_serve_plain_and_private_runs_of_one_process(loss):
    for private in (False, True, False, True):
        trained(loss, private=private)


def test_a_process_whose_run_was_refused_is_given_no_other_run(tmp_path, monkeypatch):
    (tmp_path / "keeping.py").write_text(
        "from fedfdp.models.losses import cross_entropy\nKEPT = []\n"
        "def loss(outputs, y):\n"
        "    KEPT.extend(y[y > 1][: not KEPT].tolist())\n"
        "    return cross_entropy(outputs, y) * (1 + sum(KEPT))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    base = ["rounds=1", "data.fraction=0.1", "data.clients=2", "privacy.q=0.5", "loss=keeping:loss"]
    runs = [configs.load("digits", [*base, f"algorithm.lr={lr}"]) for lr in (1, 2)]
    failed = sweep(runs, Store(tmp_path / "runs"), jobs=1)
    assert len(failed) == 2
    assert all("the forward pass changes it" in reason for reason in failed.values())
    # each of them by what it does itself, in a process that had no run before
    assert not any("an earlier run in this process" in reason for reason in failed.values())


def test_a_loss_that_changes_its_targets_is_refused_and_the_records_stay():
    """Of labels from 1 on it took 1, in place: the first two records of the pool had other labels from then on."""

    def from_one(outputs: Tensor, y: Tensor) -> Tensor:
        y -= 1
        return functional.cross_entropy(outputs, y, reduction="none")

    records = federation()
    before = records.y.clone()
    with pytest.raises(SettingError, match="changes the targets that it is given"):
        fedfdp.train(nn.Linear(6, CLASSES), records, privacy=fedfdp.DPSGD(**PRIVACY), rounds=1, loss=from_one)
    assert torch.equal(records.y, before)


def test_a_loss_is_tried_on_targets_of_every_kind_of_task():
    """One that takes only what its task has: labels from 1 on, shares, labels of which one is set, rising places."""

    def picky(wanted):
        def loss(outputs: Tensor, y: Tensor) -> Tensor:
            if not bool(wanted(y)):
                raise ValueError("not such targets")
            return outputs.flatten(1).sum(1)

        return loss

    shares, pairs = torch.tensor([0.3, 0.7]), torch.tensor([[0.5, 0.5], [0.1, 0.9]])
    cases = [
        ("regression", pairs, (2, 2), lambda y: torch.allclose(y.sum(1), torch.ones(2)) and (y > 0).all()),  # a simplex
        ("regression", pairs, (2, 2), lambda y: torch.allclose(y.norm(dim=1), torch.ones(2))),  # unit vectors
        ("regression", pairs, (2, 2), lambda y: (y[:, 0] > 0).all() and torch.isin(y[:, 1], shares.round()).all()),
        ("multi-label", pairs.round(), (2, 2), lambda y: (y.sum(1) >= 1).all()),  # at least one label
        ("classification", torch.tensor([1, 2]), (2, 3), lambda y: (y > 0).all() and len(y.unique()) == 2),
        ("regression", shares, (2, 1), lambda y: (y >= 0).all() and (y <= 1).all() and y.max() > 0),
        ("multi-label", torch.tensor([[0.0, 1.0], [1.0, 0.0]]), (2, 2), lambda y: y.max() == 1 and y.min() == 0),
        ("tokens", torch.tensor([[1, 2], [1, 2]]), (2, 2, 3), lambda y: (y > 0).all()),
    ]
    for name, y, shape, wanted in cases:
        check_task(TASKS[name], y, shape, picky(wanted))
        with pytest.raises(SettingError, match=r"fails on two made-up records \(.*\): not such targets"):
            check_task(TASKS[name], y, shape, picky(lambda y: False))
    assert not state._spoilt
