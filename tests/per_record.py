"""Per-record gradients taken from torch itself, and the comparison of a clipped sum with them."""

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from fedfdp.privacy.clipping import clipped_sum
from fedfdp.privacy.clipping.plan import _plans

CLASSES = 5


def cross_entropy(output: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(output, y, reduction="none")


def by_torch_func(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Per-record gradients by vmap(grad), the definition the rules are held to."""
    weights = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}

    def loss(w: dict[str, Tensor], xi: Tensor, yi: Tensor) -> Tensor:
        return cross_entropy(functional_call(model, w, (xi[None],)), yi[None])[0]

    return vmap(grad(loss), in_dims=(None, 0, 0))(weights, x, y)


def by_autograd(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """Per-record gradients by one backward pass per record, for models that torch.func cannot run."""
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    rows: dict[str, list[Tensor]] = {name: [] for name in named}
    for i in range(len(x)):
        loss = cross_entropy(model(x[i : i + 1]), y[i : i + 1]).sum()
        grads = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
        for (name, p), g in zip(named.items(), grads, strict=True):
            rows[name].append(torch.zeros_like(p) if g is None else g)
    return {name: torch.stack(found).detach() for name, found in rows.items()}


def close(found: Tensor, right: Tensor, scale: Tensor | float = 0.0) -> None:
    size = max(float(right.norm()), float(scale))
    assert float((found - right).norm()) <= 1e-5 * size + 1e-12


def assert_parity(model: nn.Module, x: Tensor, how: str, reference=by_torch_func, seed: int = 0) -> None:
    y = torch.randint(0, CLASSES, (len(x),), generator=torch.Generator().manual_seed(seed))
    right = reference(model, x, y)
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in right.values()]).norm(dim=0)
    clip = float(norms.median())  # about half of the records are clipped
    found = clipped_sum(model, cross_entropy, x, y, clip=clip)
    assert {plan.how for plan in _plans[model].values()} == {how}
    assert list(found.grads) == list(right)
    torch.testing.assert_close(found.norms, norms, rtol=1e-5, atol=1e-8)
    torch.testing.assert_close(found.losses, cross_entropy(model(x), y).detach(), rtol=1e-5, atol=1e-6)
    c = (clip / norms).clamp(max=1)
    torch.testing.assert_close(found.coefficients, c, rtol=1e-5, atol=1e-8)
    whole = torch.stack([torch.einsum("b,b...->...", c, g).norm() for g in right.values()]).norm()
    for name, g in right.items():
        # A gradient that is zero but for rounding (a bias before a softmax over keys) is measured against the whole.
        close(found.grads[name], torch.einsum("b,b...->...", c, g), scale=1e-2 * whole)


def head(body: nn.Module, x: Tensor) -> nn.Sequential:
    return nn.Sequential(body, nn.Flatten(), nn.Linear(body(x[:1]).flatten(1).shape[1], CLASSES))
