"""The bound's constants, estimated from a run: each with how it was found and whether it reads private data.

What reads private data is for simulations: it takes the clients' raw records, without noise, and has no place in a
deployment. An estimate is a number along one run's path; the theorem speaks of all weights.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor, nn

from fedfdp.algorithms.base import Algorithm, Population
from fedfdp.core.records import Weights
from fedfdp.core.trees import Inputs
from fedfdp.core.weights import size
from fedfdp.data import Federation
from fedfdp.data.clients import ClientData
from fedfdp.models.losses import LossFunction
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.theory.bound import Constants
from fedfdp.theory.curvature import Function, Losses, extremes, minimum
from fedfdp.theory.optimum import Optimum, derived_optimum

RECORDS = 2048


@dataclass(frozen=True)
class Estimate:
    """One constant: its value, how it was found, and whether that reads private data."""

    value: float
    how: str
    private: bool


@dataclass(frozen=True, kw_only=True)
class Estimates:
    """The fields of `Constants`, and C_t, the mean coefficient that the run applied."""

    L: Estimate
    mu: Estimate
    G: Estimate
    gamma_het: Estimate
    q0: Estimate
    q1: Estimate
    sigma: Estimate
    clip: Estimate
    dim: Estimate
    b_hat: Estimate
    distance: Estimate
    rounds: Estimate
    C_t: Estimate

    def items(self) -> dict[str, Estimate]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def given(self, values: Mapping[str, float]) -> "Estimates":
        """The same with these constants in place of the estimated ones."""
        return replace(self, **{name: Estimate(value, "given", False) for name, value in values.items()})

    def constants(self) -> Constants | None:
        """What the bound takes; None where μ ≤ 0, for which there is no bound."""
        if self.mu.value <= 0:
            return None
        values = {name: estimate.value for name, estimate in self.items().items() if name != "C_t"}
        counts = {name: int(values.pop(name)) for name in ("dim", "rounds")}
        return Constants(**values, **counts)  # type: ignore[arg-type]

    def optimum(self) -> Optimum:
        """λ*, or why the theorem has none to give for this run."""
        constants = self.constants()
        if constants is None:
            return _void(
                f"the theorem assumes that every F_i is strongly convex, and the run does not show it (μ = "
                f"{self.mu.value:.3g}): it says nothing, and there is no λ* to give"
            )
        if self.C_t.value <= 0.5:
            return _void(
                f"the run's mean coefficient is C_t = {self.C_t.value:.3g} ≤ ½, so 2C_t − 1 is 0 or less: the theorem "
                "says nothing, and there is no λ* to give"
            )
        return derived_optimum(constants)


def estimate(
    model: nn.Module,
    federation: Federation,
    *,
    first: Weights,
    final: Weights,
    algorithm: Algorithm,
    privacy: DPSGD | None,
    rounds: int,
    loss: LossFunction | None = None,
    records: int = RECORDS,
) -> Estimates:
    """The constants along a run from `first` to `final`, on at most about `records` training records."""
    losses = Losses(model, loss or federation.task.loss)
    parts = [_drawn(client, share, records) for client, share in _shared(federation)]
    used = sum(len(y) for _, y in parts)
    total = sum(len(client.train) for client in federation.clients)
    on = "all training records" if used == total else f"{used:,} of {total:,} training records"
    p = federation.shares
    path = [_Point(losses, weights, parts, p) for weights in (first, final)]
    curves = [extremes(f, losses.vector(point.weights)) for point in path for f in point.clients]
    L = max(curve.high for curve in curves)
    least = min(curves, key=lambda curve: curve.low - curve.doubt)
    start, end = (losses.vector(weights) for weights in (first, final))
    whole = minimum(_mixture(path[1].clients, p), end)
    # F_i* is at most F_i(w*), so that Γ ≥ 0 even where a descent ends early
    own = [min(minimum(f, end).value, float(f(whole.at).detach())) for f in path[1].clients]
    G = max(float(point.norms.max()) for point in path)
    sizes = [len(client.train) for client in federation.clients]
    population = Population(len(sizes), sum(sizes), min(sizes), federation.classes)
    applied = [_applied(algorithm, privacy, point, population) for point in path]
    places = "at the first and the final weights"
    return Estimates(
        L=Estimate(L, f"greatest eigenvalue of any client's Hessian {places} (Lanczos), on {on}", True),
        mu=Estimate(
            least.low - least.doubt,
            f"least eigenvalue of any client's Hessian {places} (Lanczos: {least.low:.3g}, less the {least.doubt:.2g} "
            f"it is known to), on {on}",
            True,
        ),
        G=Estimate(G, f"greatest norm of a record's gradient {places}, on {on}", True),
        gamma_het=Estimate(
            max(0.0, whole.value - float(p @ torch.tensor(own, dtype=torch.float64))),
            f"F at its minimum, found by L-BFGS from the final weights (‖∇F‖ = {whole.gradient:.2g} there), less the "
            f"same for every client alone, on {on}",
            True,
        ),
        q0=Estimate(min(float(point.gaps.min()) for point in path), f"least F_ij − F {places}, on {on}", True),
        q1=Estimate(max(float(point.gaps.max()) for point in path), f"greatest F_ij − F {places}, on {on}", True),
        sigma=Estimate(privacy.noise if privacy else 0.0, "the run's σ" if privacy else "no privacy, no noise", False),
        clip=Estimate(privacy.clip, "the run's C", False)
        if privacy
        else Estimate(G, "nothing was clipped: G, the least C that clips nothing", True),
        dim=Estimate(size(first), "the model's trained weights", False),
        b_hat=Estimate(
            privacy.q * min(sizes) if privacy else min(algorithm.batch_size, *sizes),
            "q·n_i of the smallest client, as it declares it" if privacy else "the smallest client's batch",
            False,
        ),
        distance=Estimate(
            float((start - whole.at).square().sum()),
            f"from the first weights to where L-BFGS, from the final ones, finds F least, on {on}",
            True,
        ),
        rounds=Estimate(rounds, f"the run's rounds{_steps(algorithm, privacy)}", False),
        C_t=Estimate(
            min(applied),
            f"mean coefficient of the method's own clipping: {applied[0]:.3g} at the first weights, {applied[1]:.3g} "
            f"at the final ones, on {on}",
            True,
        ),
    )


class _Point:
    """Where a run was: the clients' mean losses as functions, and every record's loss and gradient norm there."""

    def __init__(self, losses: Losses, weights: Weights, parts: list[tuple[Inputs, Tensor]], p: Tensor) -> None:
        self.weights = weights
        self.clients = [losses.mean(x, y) for x, y in parts]
        found = [losses.records(weights, x, y) for x, y in parts]
        self.losses = torch.cat([loss for loss, _ in found])
        self.norms = torch.cat([norm for _, norm in found])
        # p_i/n_i for every record: their sum with this weight is the p-weighted mean over clients
        self.share = torch.cat([(p_i / len(y)).expand(len(y)) for p_i, (_, y) in zip(p, parts, strict=True)])
        self.F = float(self.share @ self.losses)

    @property
    def gaps(self) -> Tensor:
        """Δ_ij = F_ij − F"""
        return self.losses - self.F


def _applied(algorithm: Algorithm, privacy: DPSGD | None, point: _Point, population: Population) -> float:
    """Σ p_i mean_j c_ij of a first round at this point, with the exact F broadcast."""
    method = algorithm.with_loss(point.F)
    coefficient = method.coefficient(method.broadcast(method.init(point.weights, population, privacy)), privacy)
    return float(point.share @ coefficient(point.losses, point.norms))


def _mixture(clients: list[Function], p: Tensor) -> Function:
    """F = Σ p_i F_i."""

    def value(w: Tensor) -> Tensor:
        return torch.stack([share * f(w) for share, f in zip(p, clients, strict=True)]).sum()

    return value


def _shared(federation: Federation) -> list[tuple[ClientData, float]]:
    return list(zip(federation.clients, federation.shares.tolist(), strict=True))


def _drawn(client: ClientData, share: float, records: int) -> tuple[Inputs, Tensor]:
    """A client's training records, or its share of `records` of them, the same ones every time."""
    wanted = math.ceil(share * records)
    if wanted >= len(client.train):
        return client.train.take()
    return client.train.take(torch.randperm(len(client.train), generator=torch.Generator().manual_seed(0))[:wanted])


def _steps(algorithm: Algorithm, privacy: DPSGD | None) -> str:
    one = algorithm.private_steps(None, privacy) == 1 if privacy else algorithm.local_steps == 1
    return "" if one else "; the theorem is for one local step per round, and this run has another number"


def _void(reason: str) -> Optimum:
    return Optimum(lambda_star=None, regime="void", reason=reason, domain=(0.0, 0.0))
