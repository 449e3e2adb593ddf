"""A learner on another device, and the named output of models that differ between clients."""

import torch
from torch import Tensor, nn

import fedfdp
from fedfdp.models.learner import Learner
from fedfdp.models.losses import cross_entropy
from fedfdp.models.tasks import task_for


class Named(nn.Module):
    """Gives two entries, and only the second is what it is trained for."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 3), nn.Linear(3, width)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        hidden = self.body(x).tanh()
        return {"hidden": hidden, "scores": self.head(hidden)}


def test_a_learner_on_another_device_keeps_task_output_and_identity():
    torch.manual_seed(0)
    x, y = torch.randn(6, 4), torch.arange(6) % 3
    other = Learner(Named(3), cross_entropy, output="scores", task=task_for(3), in_parts=True)
    learner = Learner(Named(3), cross_entropy, output="scores", task=task_for(3), in_parts=True, others={"b": other})
    made = learner.on("cpu")
    assert made.identity == learner.identity
    assert made.of("b").identity == other.identity
    assert made.task == learner.task
    assert made.first is not None
    assert made is not learner
    losses, right, output = made.judge(made.initial(), x, y)
    assert torch.equal(losses, cross_entropy(learner.model(x)["scores"], y))
    assert torch.equal(right.bool(), output.argmax(1) == y)


def test_the_declared_output_holds_for_models_that_differ_too():
    torch.manual_seed(0)
    x, y = torch.randn(80, 4), torch.arange(80) % 3
    clients = fedfdp.Federation.from_clients({"north": (x[:40], y[:40]), "south": (x[40:], y[40:])})
    result = fedfdp.train(
        Named(3), clients, algorithm=fedfdp.FedAvg(lr=0.1), rounds=1, own=["head.*"], models={"south": Named(3)},
        output="scores",
    )  # fmt: skip
    assert result.summary["rounds"] == 1
