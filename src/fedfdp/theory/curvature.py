"""Curvature and minima of a mean loss over given records: extreme eigenvalues by Lanczos, minima by L-BFGS.

Works in double precision on a copy of the model, in evaluation mode; never changes what it is given.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fedfdp.core.records import Weights
from fedfdp.core.trees import Inputs, arguments_of, each
from fedfdp.models.losses import LossFunction
from fedfdp.privacy.clipping import clipped_sum

Function = Callable[[Tensor], Tensor]  # weights as one vector → a number
LANCZOS_STEPS = 30
LBFGS_STEPS = 50


@dataclass(frozen=True)
class Extremes:
    """The least and greatest eigenvalue found. The Hessian has an eigenvalue within `doubt` of the least one."""

    low: float
    high: float
    doubt: float


@dataclass(frozen=True)
class Minimum:
    """Where a descent ended. The gradient's norm says how near a minimum that is."""

    at: Tensor
    value: float
    gradient: float


class Losses:
    """The losses of one model as functions of its trained weights, put into one vector."""

    def __init__(self, model: nn.Module, loss: LossFunction) -> None:
        self.model = copy.deepcopy(model).double().eval()
        self.loss = loss
        self.trained = {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    def vector(self, weights: Weights) -> Tensor:
        return torch.cat([weights[name].detach().double().reshape(-1) for name in self.trained])

    def mean(self, x: Inputs, y: Tensor) -> Function:
        """F(w), the mean loss over these records."""
        x, y = each(x, _double), _double(y)
        shapes = [p.shape for p in self.trained.values()]
        sizes = [p.numel() for p in self.trained.values()]

        def value(w: Tensor) -> Tensor:
            parts = torch.split(w, sizes)
            named = {name: part.view(shape) for name, part, shape in zip(self.trained, parts, shapes, strict=True)}
            return self.loss(functional_call(self.model, named, *arguments_of(x)), y).mean()

        return value

    def records(self, weights: Weights, x: Inputs, y: Tensor) -> tuple[Tensor, Tensor]:
        """Every record's loss and the norm of its gradient."""
        with torch.no_grad():
            for name, parameter in self.trained.items():
                parameter.copy_(weights[name])
        found = clipped_sum(self.model, self.loss, each(x, _double), _double(y), clip=1.0)
        return found.losses, found.norms


def extremes(f: Function, at: Tensor, *, steps: int = LANCZOS_STEPS) -> Extremes:
    """The ends of the Hessian's spectrum at these weights; exact where there are at most `steps` weights."""
    w = at.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(f(w), w, create_graph=True)

    def product(v: Tensor) -> Tensor:
        return torch.autograd.grad(gradient @ v, w, retain_graph=True)[0]

    v = torch.randn(len(at), dtype=at.dtype, generator=torch.Generator().manual_seed(0))
    basis = [v / v.norm()]
    diagonal: list[float] = []
    beside: list[float] = []
    for _ in range(min(steps, len(at))):
        v = product(basis[-1])
        diagonal.append(float(v @ basis[-1]))
        known = torch.stack(basis)
        for _ in range(2):  # once is not enough in floating point: lost orthogonality shows as copies of eigenvalues
            v = v - known.T @ (known @ v)
        beside.append(float(v.norm()))
        if beside[-1] <= 1e-12 * max(map(abs, diagonal)):  # nothing new to be found in any direction
            break
        basis.append(v / beside[-1])
    off = torch.tensor(beside[:-1], dtype=at.dtype)
    tridiagonal = torch.diag(torch.tensor(diagonal, dtype=at.dtype)) + torch.diag(off, 1) + torch.diag(off, -1)
    values, vectors = torch.linalg.eigh(tridiagonal)
    left = 0.0 if len(diagonal) == len(at) else beside[-1]  # with as many steps as weights all is known
    return Extremes(float(values[0]), float(values[-1]), left * abs(float(vectors[-1, 0])))


def minimum(f: Function, start: Tensor, *, steps: int = LBFGS_STEPS) -> Minimum:
    """The lowest point that descent from these weights finds."""
    w = start.detach().clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [w], max_iter=steps, tolerance_grad=1e-10, tolerance_change=1e-14, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = f(w)
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    value = f(w)
    (gradient,) = torch.autograd.grad(value, w)
    return Minimum(w.detach(), float(value.detach()), float(gradient.norm()))


def _double(values: Tensor) -> Tensor:
    return values.double() if values.is_floating_point() else values
