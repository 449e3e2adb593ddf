"""Opacus' two ways to a private step. Opacus is imported only when one of them is made."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional
from torch.optim import Optimizer

from fedfdp.bench.peers.base import Peer, Task, backward
from fedfdp.core.records import Weights


class _Wrapped(Peer):
    """A model that Opacus has wrapped, with an optimiser of Opacus' that clips, noises and steps."""

    def __init__(self, task: Task, model: nn.Module, optimizer: Callable[..., Optimizer]) -> None:
        self.task, self.model = task, model
        self.optimizer = optimizer(
            optimizer=torch.optim.SGD(model.parameters(), lr=task.setting.lr),
            noise_multiplier=task.setting.sigma,
            max_grad_norm=task.setting.clip,
            expected_batch_size=task.batch,
        )

    def weights(self) -> Weights:
        return unwrapped(self.model)


class OpacusHooks(_Wrapped):
    """The usual way: per-record gradients by hooks."""

    def __init__(self, task: Task) -> None:
        from opacus.grad_sample import GradSampleModule
        from opacus.optimizers import DPOptimizer

        super().__init__(task, GradSampleModule(fixed_for_opacus(task.model)), DPOptimizer)

    def step(self) -> None:
        x, y = self.task.take()
        backward(functional.cross_entropy(self.model(x), y))
        self.optimizer.step()
        self.optimizer.zero_grad()  # after, not before: per-record gradients must not stay while others are measured


class OpacusGhost(_Wrapped):
    """Ghost clipping: norms first, then a second backward pass of the reweighted loss."""

    def __init__(self, task: Task) -> None:
        from opacus.grad_sample import GradSampleModuleFastGradientClipping
        from opacus.optimizers import DPOptimizerFastGradientClipping
        from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

        model = GradSampleModuleFastGradientClipping(fixed_for_opacus(task.model), max_grad_norm=task.setting.clip)
        super().__init__(task, model, DPOptimizerFastGradientClipping)
        self.loss = DPLossFastGradientClipping(self.model, self.optimizer, nn.CrossEntropyLoss())

    def step(self) -> None:
        x, y = self.task.take()
        self.loss(self.model(x), y).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def fixed_for_opacus(model: nn.Module) -> nn.Module:
    """The model with layers that Opacus cannot take replaced by its own equivalents, as its manual says."""
    from opacus.validators import ModuleValidator

    fixed: nn.Module = ModuleValidator.fix(model)
    return fixed.train()


def unwrapped(model: nn.Module) -> Weights:
    """The weights under their names before Opacus wrapped the model and split attention's projection in three."""
    found = {name.removeprefix("_module."): p.detach().clone() for name, p in model.named_parameters()}
    for name in [name for name in found if ".qlinear." in name]:
        parts = [found.pop(name.replace(".qlinear.", f".{letter}linear.")) for letter in "qkv"]
        found[name.replace(".qlinear.", ".in_proj_")] = torch.cat(parts)
    return Weights.of(found)
