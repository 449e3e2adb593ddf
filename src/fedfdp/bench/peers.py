"""One training step in seven ways: plain, ours with and without its watch, and four other private ones.

Every private peer computes the same update up to its noise; the tests hold them to that. All change their weights in
place, and none keeps an account.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfdp.core import weights as w
from fedfdp.core.records import Weights
from fedfdp.data.federation import ClientData, Shard
from fedfdp.fairness.coefficients import PlainClip
from fedfdp.models.learner import Learner, cross_entropy
from fedfdp.privacy.clipping import by_rules
from fedfdp.privacy.clipping.proof.calls import Reference
from fedfdp.privacy.clipping.proof.follower import Follower
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.privacy.noise.randomness import Seeded
from fedfdp.training.client import LocalClient


@dataclass(frozen=True)
class Setting:
    """The private step's numbers; the small step keeps weights sound however often it is repeated."""

    clip: float = 0.1
    sigma: float = 2.0
    sigma_loss: float = 5.0  # a round releases a loss too
    lr: float = 0.01


@dataclass(frozen=True)
class Task:
    """A model of the peer's own and the records of one batch, which every step takes from their pool by index."""

    model: nn.Module
    x: Tensor
    y: Tensor
    setting: Setting

    @property
    def batch(self) -> int:
        return len(self.x)

    def take(self) -> tuple[Tensor, Tensor]:
        index = torch.arange(len(self.x))
        return self.x[index], self.y[index]


class Peer(Protocol):
    """What is measured: `step` is timed, `prepare` before each is not."""

    def prepare(self) -> None: ...

    def step(self) -> None: ...

    def weights(self) -> Weights: ...


class StepPeer:
    """A peer whose weights are its model's and that needs no preparation."""

    def __init__(self, task: Task) -> None:
        self.task, self.model = task, task.model
        self.parameters = dict(task.model.named_parameters())

    def prepare(self) -> None:
        pass

    def weights(self) -> Weights:
        return {name: p.detach().clone() for name, p in self.parameters.items()}

    def _noised_step(self, sums: list[Tensor]) -> None:
        """w ← w − η(Σ c_j g_j + σC·N(0, I))/B, from the clipped sums in the parameters' order."""
        setting = self.task.setting
        with torch.no_grad():
            for parameter, total in zip(self.parameters.values(), sums, strict=True):
                noise = torch.randn_like(parameter).mul_(setting.sigma * setting.clip)
                parameter.add_(noise.add_(total), alpha=-setting.lr / self.task.batch)


class Plain(StepPeer):
    """SGD without privacy: the limit."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.optimizer = torch.optim.SGD(task.model.parameters(), lr=task.setting.lr)

    def step(self) -> None:
        x, y = self.task.take()
        backward(functional.cross_entropy(self.model(x), y))
        self.optimizer.step()
        self.optimizer.zero_grad()


class Ours:
    """The client's own private step: it draws a batch (here all records), clips, sums, noises; then the update."""

    def __init__(self, task: Task) -> None:
        setting = task.setting
        everyone, nobody = torch.arange(task.batch), torch.arange(0)
        self.data = ClientData("bench", Shard(task.x, task.y, everyone), Shard(task.x, task.y, nobody))
        self.learner = Learner(task.model, cross_entropy)
        self.privacy = DPSGD(epsilon=None, sigma=setting.sigma, q=1.0, clip=setting.clip)
        self.coefficient, self.lr = PlainClip(setting.clip), setting.lr
        self.here, self.steps = self.learner.initial(), 0

    def prepare(self) -> None:
        pass

    def step(self) -> None:
        client = LocalClient(self.data, self.learner, privacy=self.privacy, randomness=Seeded(0), round=self.steps)
        (batch,) = client.batches(steps=1, epochs=None, batch_size=self.data.train.index.numel())
        w.add_(self.here, batch.release(self.here, coefficient=self.coefficient).gradient, scale=-self.lr)
        self.steps += 1

    def weights(self) -> Weights:
        return w.clone(self.here)


class Unwatched(Ours):
    """Ours without the comparison of every call with the proven pass: what that costs. It protects nobody."""

    def step(self) -> None:
        used = vars(by_rules)
        watched = {name: used[name] for name in _UNWATCHED}
        used.update(_UNWATCHED)
        try:
            super().step()
        finally:
            used.update(watched)


class _Trusting(Follower):
    """Notes which trained parameters a call uses, and looks at nothing else."""

    def key(self, args: Any, kwargs: Mapping[str, Any]) -> Any:
        self.given = []
        self.used = [self.trained[id(value)] for value in (*args, *kwargs.values()) if id(value) in self.trained]
        return (Reference("value", 0),)

    def expect(self, func: Any, key: Any) -> None:
        pass

    def note(self, *args: Any) -> None:
        pass

    def same(self, tensor: Tensor, reference: Reference) -> None:
        pass

    def ended(self) -> None:
        pass

    def reference(self, tensor: Tensor) -> Reference:
        return Reference("value", 0)


_UNWATCHED = {"Follower": _Trusting, "_check_backward": lambda losses, job: None}


class OpacusHooks:
    """Opacus in the usual way: per-sample gradients by hooks, and the optimiser that clips, noises and steps."""

    def __init__(self, task: Task) -> None:
        from opacus.grad_sample import GradSampleModule
        from opacus.optimizers import DPOptimizer

        self.task = task
        self.model = GradSampleModule(fixed_for_opacus(task.model))
        self.optimizer = DPOptimizer(**_optimizer_arguments(self.model, task))

    def prepare(self) -> None:
        pass

    def step(self) -> None:
        x, y = self.task.take()
        backward(functional.cross_entropy(self.model(x), y))
        self.optimizer.step()
        self.optimizer.zero_grad()  # after, not before: per-sample gradients must not stay while others are measured

    def weights(self) -> Weights:
        return unwrapped(self.model)


class OpacusGhost:
    """Opacus' ghost clipping: norms first, then a second backward pass of the reweighted loss."""

    def __init__(self, task: Task) -> None:
        from opacus.grad_sample import GradSampleModuleFastGradientClipping
        from opacus.optimizers import DPOptimizerFastGradientClipping
        from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

        self.task = task
        self.model = GradSampleModuleFastGradientClipping(fixed_for_opacus(task.model), max_grad_norm=task.setting.clip)
        self.optimizer = DPOptimizerFastGradientClipping(**_optimizer_arguments(self.model, task))
        self.loss = DPLossFastGradientClipping(self.model, self.optimizer, nn.CrossEntropyLoss())

    def prepare(self) -> None:
        pass

    def step(self) -> None:
        x, y = self.task.take()
        self.loss(self.model(x), y).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def weights(self) -> Weights:
        return unwrapped(self.model)


class Vmap(StepPeer):
    """Per-sample gradients by torch.func, all of them stored."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)

        def loss(parameters: Weights, x: Tensor, y: Tensor) -> Tensor:
            output = torch.func.functional_call(task.model, parameters, (x[None],))
            return functional.cross_entropy(output, y[None])

        self.per_sample = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))

    def step(self) -> None:
        detached = {name: p.detach() for name, p in self.parameters.items()}
        gradients = self.per_sample(detached, *self.task.take())
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients.values()]).norm(dim=0)
        c = (self.task.setting.clip / norms).clamp(max=1.0)
        self._noised_step([torch.einsum("b,b...->...", c, gradients[name]) for name in self.parameters])


class Loop(StepPeer):
    """One forward and backward pass a record, clipped and added up: how the paper's authors do it."""

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
        self._noised_step(sums)


STEP_PEERS: dict[str, Callable[[Task], Peer]] = {
    "plain": Plain,
    "ours": Ours,
    "unwatched": Unwatched,
    "opacus_hooks": OpacusHooks,
    "opacus_ghost": OpacusGhost,
    "vmap": Vmap,
    "loop": Loop,
}
STORES_ALL = ("opacus_hooks", "vmap")  # those that hold every record's gradient at once


def missing(peer: str) -> str | None:
    """The name of the package that this peer needs and that cannot be imported."""
    if not peer.startswith("opacus"):
        return None
    try:
        import opacus  # noqa: F401
    except ImportError:
        return "opacus"
    return None


def fixed_for_opacus(model: nn.Module) -> nn.Module:
    """The model with layers that Opacus cannot take replaced by its own equivalents, as its manual says."""
    from opacus.validators import ModuleValidator

    fixed: nn.Module = ModuleValidator.fix(model)
    return fixed.train()


def _optimizer_arguments(model: nn.Module, task: Task) -> dict[str, Any]:
    return {
        "optimizer": torch.optim.SGD(model.parameters(), lr=task.setting.lr),
        "noise_multiplier": task.setting.sigma,
        "max_grad_norm": task.setting.clip,
        "expected_batch_size": task.batch,
    }


def unwrapped(model: nn.Module) -> Weights:
    """The weights under their names before Opacus wrapped the model and split attention's projection in three."""
    found = {name.removeprefix("_module."): p.detach().clone() for name, p in model.named_parameters()}
    for name in [name for name in found if ".qlinear." in name]:
        parts = [found.pop(name.replace(".qlinear.", f".{letter}linear.")) for letter in "qkv"]
        found[name.replace(".qlinear.", ".in_proj_")] = torch.cat(parts)
    return found


def backward(loss: Tensor) -> None:
    torch.autograd.backward(loss)
