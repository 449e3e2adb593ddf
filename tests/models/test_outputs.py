"""Which entry of what a model gives counts: by name, by number, in whatever it comes."""

from collections import namedtuple

import pytest
import torch
from torch import nn

import fedfdp
from fedfdp.core.errors import SettingError
from fedfdp.models.outputs import entry_of, unwrapped

SCORES, OTHER = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0]])
Fields = namedtuple("Fields", "scores other")
Usual = namedtuple("Usual", "hidden logits")


class Slots:
    __slots__ = ("other", "scores")

    def __init__(self):
        self.scores, self.other = SCORES, OTHER


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 2)

    def forward(self, x):
        return x, self.inner(x)


@pytest.mark.parametrize(
    ("given", "wanted", "entry"),
    [
        ((SCORES, OTHER), 0, "0"),
        ((SCORES, OTHER), "0", "0"),
        ((SCORES,), None, "0"),
        (Fields(SCORES, OTHER), "scores", "scores"),
        (Fields(SCORES, OTHER), 0, "0"),
        (Usual(OTHER, SCORES), None, "logits"),
        (Slots(), "scores", "scores"),
        ({"a": OTHER, "scores": SCORES}, "scores", "scores"),
        ({1: SCORES, 2: OTHER}, 1, "1"),
        ({"a": OTHER, "logits": SCORES}, "", "logits"),
    ],
)
def test_the_entry_that_counts(given, wanted, entry):
    assert entry_of(given, wanted, "Net") == entry
    assert unwrapped(given, entry) is SCORES


@pytest.mark.parametrize(
    ("given", "wanted", "line"),
    [
        ((SCORES, OTHER), 2, "output = 2: Net gives 0, 1; name the one"),
        ((SCORES, OTHER), None, "output = None: Net gives 0, 1; name the one"),
        (Fields(SCORES, OTHER), None, "output = None: Net gives 0, 1, scores, other; name the one"),
        (Slots(), None, "output = None: Net gives other, scores; name the one"),
        (None, None, "output = None: Net gives NoneType; name the one"),
        (None, "logits", "output = 'logits': Net gives NoneType; name the one"),
    ],
)
def test_what_is_not_there_is_one_line(given, wanted, line):
    with pytest.raises(SettingError, match=f"^{line}"):
        entry_of(given, wanted, "Net")


def test_a_run_takes_the_number_of_an_entry():
    x, y = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2
    clients = fedfdp.Federation.from_clients({"north": (x[:20], y[:20]), "south": (x[20:], y[20:])})
    found = [
        fedfdp.train(Pair(), clients, algorithm=fedfdp.FedAvg(lr=0.1), rounds=1, output=output) for output in (1, "1")
    ]
    assert [result.summary["task"]["output"] for result in found] == ["1", "1"]


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (lambda z: z.detach(), "its outputs have no gradient: nothing but noise would be trained"),
        (lambda z: z.argmax(-1, keepdim=True).expand(-1, 2), r"gives whole numbers \(torch.int64\)"),
    ],
)
def test_outputs_that_cannot_be_trained_are_refused(end, said):
    class Net(nn.Linear):
        def forward(self, x):
            return end(super().forward(x))

    federation = fedfdp.Federation.from_clients({"a": (torch.zeros(8, 3), torch.arange(8) % 2)})
    with pytest.raises(SettingError, match=f"^model = 'Net': {said}"):
        fedfdp.train(Net(3, 2), federation, algorithm=fedfdp.FedAvg(lr=0.1), rounds=1)
