"""Steps that need nothing but torch: the plain one, and two ways to per-record gradients."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfdp.bench.peers.base import StepPeer, Task, backward


class Plain(StepPeer):
    """SGD without privacy: what the others are measured against."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.optimizer = torch.optim.SGD(task.model.parameters(), lr=task.setting.lr)

    def step(self) -> None:
        x, y = self.task.take()
        backward(functional.cross_entropy(self.model(x), y))
        self.optimizer.step()
        self.optimizer.zero_grad()


class Vmap(StepPeer):
    """Per-record gradients by torch.func, all of them stored."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)

        def loss(parameters: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            output = torch.func.functional_call(task.model, parameters, (x[None],))
            return functional.cross_entropy(output, y[None])

        self.per_record = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))

    def step(self) -> None:
        detached = {name: p.detach() for name, p in self.parameters.items()}
        gradients = self.per_record(detached, *self.task.take())
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients.values()]).norm(dim=0)
        c = (self.task.setting.clip / norms).clamp(max=1.0)
        _noised_step(self, [torch.einsum("b,b...->...", c, gradients[name]) for name in self.parameters])


class Loop(StepPeer):
    """One forward and backward pass per record, clipped and added up: how the paper's authors do it."""

    def step(self) -> None:
        sums = [torch.zeros_like(p) for p in self.parameters.values()]
        x, y = self.task.take()
        for j in range(len(x)):
            backward(functional.cross_entropy(self.model(x[j : j + 1]), y[j : j + 1]))
            nn.utils.clip_grad_norm_(self.parameters.values(), self.task.setting.clip)
            for total, parameter in zip(sums, self.parameters.values(), strict=True):
                assert parameter.grad is not None
                total += parameter.grad
            self.model.zero_grad()
        _noised_step(self, sums)


def _noised_step(peer: StepPeer, sums: list[Tensor]) -> None:
    """w ← w − η(Σ c_j g_j + σC·N(0, I))/B, from the clipped sums in the parameters' order."""
    setting = peer.task.setting
    with torch.no_grad():
        for parameter, total in zip(peer.parameters.values(), sums, strict=True):
            noise = torch.randn_like(parameter).mul_(setting.sigma * setting.clip)
            parameter.add_(noise.add_(total), alpha=-setting.lr / peer.task.batch)
