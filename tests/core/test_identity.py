"""Whatever may compute something else has another digest; the same made anew has the same, in another process too."""

import copy
import functools
import random
import subprocess
import sys
import types
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from fedfdp.core.identity import examine, identity, remembered
from fedfdp.core.weights import Weights

SCALE, TABLE = 1.0, {"weights": torch.ones(3)}
HELPERS = SimpleNamespace(factor=2.0)


def helper(x, by=1.0):
    return x * by * SCALE


def scaled(output, y):
    return helper(output) + y


def with_table(output, y):
    return output * TABLE["weights"].sum() * HELPERS.factor


def closed_over(value):
    def loss(output, y):
        return output * value - y

    return loss


def with_default(value):
    def loss(output, y, by=value, *, and_by=1.0):
        return output * by * and_by

    return loss


def with_keyword(value):
    def loss(output, y, *, by=value):
        return output * by

    return loss


def with_constant(value):
    space: dict = {}
    exec(f"def loss(output, y):\n    return output * {value}", space)
    return space["loss"]


class Scaled:
    def __init__(self, value):
        self.value = value

    def __call__(self, output, y):
        return output * self.value

    def method(self, output, y):
        return output + self.value


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value

    def __call__(self, output, y):
        return output * self.value


def of_class(value):
    class Loss:
        factor = value

        def __call__(self, output, y):
            return output * self.factor

    return Loss()


class Net(nn.Module):
    def __init__(self, value):
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.value = nn.Linear(2, 2), value

    def forward(self, x):
        return self.linear(x) * self.value


def with_buffer(value):
    net = Net(1.0)
    net.register_buffer("shift", torch.tensor([value]))
    return net


def with_frozen(value):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    with torch.no_grad():
        net[0].weight.fill_(value)
    net[0].requires_grad_(False)
    return net


def with_hook(value):
    net = Net(1.0)
    net.register_forward_hook(lambda module, inputs, output: output * value)
    return net


def with_hidden_tensor(value):
    net = Net(1.0)
    net.kept = {"deep": [SimpleNamespace(tensor=torch.tensor([value]))]}
    return net


MAKERS = {
    "closure": closed_over,
    "closure of a tensor": lambda value: closed_over(torch.tensor([value])),
    "closure of an array": lambda value: closed_over(np.array([1.0, value])),
    "closure of a function": lambda value: closed_over(closed_over(value)),
    "closure of a list": lambda value: closed_over([1, {"a": (value,)}]),
    "default": with_default,
    "keyword": with_keyword,
    "constant": with_constant,
    "partial": lambda value: functools.partial(helper, by=value),
    "attribute": Scaled,
    "slot": Slotted,
    "method": lambda value: Scaled(value).method,
    "class": of_class,
    "no_grad": lambda value: torch.no_grad()(closed_over(value)),
    "cached": lambda value: functools.lru_cache(closed_over(value)),
    "library module": lambda value: nn.CrossEntropyLoss(weight=torch.tensor([1.0, value]), reduction="none"),
    "library setting": lambda value: nn.SmoothL1Loss(reduction="none", beta=value),
    "model": Net,
    "buffer": with_buffer,
    "frozen": with_frozen,
    "hook": with_hook,
    "hidden tensor": with_hidden_tensor,
    "generator of numbers": lambda value: closed_over(random.Random(value)),
    "numpy's generator": lambda value: closed_over(np.random.default_rng(int(value * 2))),
    "torch's generator": lambda value: closed_over(torch.Generator().manual_seed(int(value * 2))),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_what_is_held_tells_it_apart(make):
    one, same, other = make(1.0), make(1.0), make(1.5)
    assert examine(one).unknown == ""
    assert identity(one) == identity(same)
    assert identity(one) != identity(other)


@pytest.mark.parametrize(
    ("what", "where", "value"),
    [
        (scaled, "SCALE", 2.0),  # through a function that it calls
        (scaled, "helper", lambda x: x),
        (with_table, "TABLE", {"weights": torch.zeros(3)}),
        (with_table, "HELPERS", SimpleNamespace(factor=3.0)),
        (Scaled(1.0), "SCALE", 1.0),
    ],
)
def test_globals_that_are_named_count_and_others_do_not(monkeypatch, what, where, value):
    before = identity(what)
    assert identity(what) == before
    monkeypatch.setitem(globals(), where, value)
    assert (identity(what) == before) == isinstance(what, Scaled)


def test_a_global_called_like_an_attribute_is_another_thing(monkeypatch):
    """`self.value` names no global: what a script happens to call `value` does not make another run."""
    before = identity(Scaled(1.0)), identity(Net(1.0))
    monkeypatch.setitem(globals(), "value", torch.ones(3))
    monkeypatch.setitem(globals(), "linear", torch.ones(3))
    assert (identity(Scaled(1.0)), identity(Net(1.0))) == before


def test_modules_of_ones_own_count_by_what_is_named_of_them(tmp_path, monkeypatch):
    own = types.ModuleType("own_losses")
    monkeypatch.setitem(sys.modules, "own_losses", own)
    exec("FACTOR, OTHER = 1.0, 1.0\ndef by(x): return x * FACTOR", vars(own))
    space: dict = {"own": own}
    exec("def loss(output, y): return own.by(output)", space)
    exec("def late(output, y):\n    from own_losses import by\n    return by(y)", space)
    for loss in (space["loss"], space["late"]):
        own.FACTOR, own.OTHER = 1.0, 1.0
        before = identity(loss)
        own.OTHER = 2.0
        assert identity(loss) == before
        own.FACTOR = 2.0
        assert identity(loss) != before


def test_weights_that_are_trained_do_not_count_and_the_rest_of_a_copy_is_the_same():
    for net in (Net(1.0), nn.LSTM(2, 3), nn.TransformerEncoderLayer(4, 2), with_hidden_tensor(1.0)):
        other = copy.deepcopy(net).eval()
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.add_(1.0)
        assert identity(other) == identity(net)
    whole, frozen = Net(1.0), Net(1.0)
    frozen.linear.bias.requires_grad_(False)
    assert identity(whole) != identity(frozen)
    loss = nn.CrossEntropyLoss(weight=nn.Parameter(torch.ones(2)))
    assert identity(closed_over(loss)) != identity(closed_over(nn.CrossEntropyLoss(weight=torch.zeros(2))))


def test_what_cannot_be_read_is_like_nothing_else_and_is_named(tmp_path):
    made = [closed_over(open(tmp_path / "file", "w")) for _ in range(2)]  # noqa: SIM115
    assert identity(made[0]) != identity(made[1])
    assert identity(made[0]) == identity(made[0])
    assert examine(made[0], "loss").unknown == "loss.value (TextIOWrapper)"
    assert examine(closed_over(x for x in []), "loss").unknown == "loss.value (generator)"
    chain: list = []
    for _ in range(5000):
        chain = [chain]
    assert "nested too deeply" in examine(chain, "loss").unknown


def test_a_method_that_names_weights_is_the_same_as_when_they_were_a_dict():
    for space in (first := {"Weights": Weights}, second := {"Weights": dict[str, torch.Tensor]}):
        exec("def local(x):\n    def step(here: Weights) -> Weights: return here\n    return step(x)", space)
    assert identity(first["local"]) == identity(second["local"])


def test_things_within_themselves_come_to_an_end():
    one, other = Scaled(1.0), Scaled(1.0)
    one.itself, other.itself = one, other
    assert identity(one) == identity(other) != identity(Scaled(1.0))

    def loss(output, y):
        return loss(output, y)

    assert examine(loss).unknown == ""


def test_a_file_called_as_one_of_pythons_is_ones_own(tmp_path, monkeypatch):
    """`test` is a package of Python's own; a file of that name may hold a loss all the same."""
    found_as = "from fedfdp.core.identity import identity; print(identity(test.loss))"
    script = "import sys; sys.path.insert(0, {!r}); import test; " + found_as
    found = []
    for constant in (1, 2):
        folder = tmp_path / str(constant)
        folder.mkdir()
        (folder / "test.py").write_text(f"def loss(output, y):\n    return output * {constant}\n")
        ran = subprocess.run(
            [sys.executable, "-c", script.format(str(folder))], capture_output=True, text=True, check=True
        )
        found.append(ran.stdout)
    assert found[0] != found[1]


def test_the_same_in_another_process():
    """Whatever order sets have there."""
    script = "import test_identity as t; print(*[t.identity(make(1.0)) for make in t.MAKERS.values()])"
    options = {"cwd": Path(__file__).parent, "capture_output": True, "text": True, "check": True}
    ran = subprocess.run([sys.executable, "-c", script], **options).stdout.split()
    again = subprocess.run([sys.executable, "-c", script], **options).stdout.split()
    assert ran == again
    assert len(set(ran)) == len(MAKERS)


def test_it_is_remembered_for_each_object_as_long_as_that_lives():
    losses = [closed_over(float(i)) for i in range(50)]
    assert len({remembered(loss) for loss in losses}) == 50
    del losses
    assert len({remembered(closed_over(float(i))) for i in range(50)}) == 50  # at places that others had before
    assert remembered(scaled) == remembered(scaled) == identity(scaled)


def test_a_class_of_ours_that_moved_and_type_arguments_are_no_other_run():
    """An older run was made with classes where they were then, and with methods that were not generic."""
    from fedfdp.algorithms.base import Algorithm, Upload
    from fedfdp.core.identity.hashing import hashed

    assert Upload.__module__ == "fedfdp.algorithms.record_types"
    assert identity(Upload) == hashed("class", "fedfdp.algorithms.base", "Upload").hex()

    def made(base):
        return type("Own", (base,), {"__module__": __name__, "lr": 0.5})

    generic = made(Algorithm)
    assert "__parameters__" in vars(generic)
    delattr(generic, "__parameters__")
    assert identity(generic) == identity(made(Algorithm))
