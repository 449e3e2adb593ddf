"""How the server turns the clients' released losses into aggregation weights (post-processing: costs no privacy)."""

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]


def fair_weight(loss: float, mean_loss: float, *, lam: float, low: float, high: float) -> float:
    """clamp(1 + λ_s(F̃_i − F), low, high): a client the model serves badly counts for more."""
    return min(max(1.0 + lam * (loss - mean_loss), low), high)


def onto_simplex(point: Numbers, total: float = 1.0) -> Numbers:
    """The nearest point with no negative entry and that sum: max(v − θ, 0) with the θ that gives the sum."""
    falling = np.sort(point)[::-1]
    thetas = (np.cumsum(falling) - total) / np.arange(1, len(point) + 1)
    positive = np.flatnonzero(falling > thetas)
    return np.maximum(point - thetas[positive[-1]], 0.0) if len(positive) else point


def least_norm(gram: Numbers, low: Numbers, high: Numbers, *, rounds: int = 10_000) -> Numbers:
    """The λ within [low, high] with Σ λ = 1 that makes λᵀGλ least, by projected gradient with momentum.

    G is made positive semi-definite first: of noised updates, less what noise adds, it need not be.
    """
    values, vectors = np.linalg.eigh((gram + gram.T) / 2)
    gram = (vectors * np.maximum(values, 0.0)) @ vectors.T
    step = 1 / max(float(values[-1]), 1e-300)
    found = ahead = onto_box(np.full(len(gram), 1 / len(gram)), low, high)
    momentum = 1.0
    for _ in range(rounds):
        moved = onto_box(ahead - step * (gram @ ahead), low, high)
        after = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = moved + (momentum - 1) / after * (moved - found)
        change, found, momentum = float(np.abs(moved - found).max()), moved, after
        if change < 1e-12:
            break
    return found


def onto_box(point: Numbers, low: Numbers, high: Numbers) -> Numbers:
    """The nearest point within [low, high] whose entries sum to 1: clamp(v − θ). Sums bend at few θ."""
    bends = np.sort(np.concatenate([point - low, point - high]))
    sums = np.clip(point - bends[:, None], low, high).sum(1)  # falls from Σ high to Σ low
    theta = float(np.interp(1.0, sums[::-1], bends[::-1]))
    return np.clip(point - theta, low, high)


def without_conflicts(gram: Numbers, losses: Numbers, shares: Numbers, keep: float) -> Numbers:
    """The weights of the updates in Σ p_i u'_i, u'_i being u_i without what it has against any other update.

    From the lowest loss to the highest, u'_i ← u'_i − (u'_i·u_j)u_j/‖u_j‖² where u'_i·u_j < 0. The updates of the
    highest losses, a part `keep` of all, stay as they are. `gram` holds the products u_i·u_j, which is all that counts.
    """
    order, count = np.argsort(losses, kind="stable"), len(losses)
    whole = set(order[int(np.ceil((count - 1) * (1 - keep))) :].tolist()) if keep > 0 else set()
    parts = np.eye(count)  # row i: u'_i as a sum of the updates
    for i in range(count):
        for j in order:
            against = float(parts[i] @ gram[:, j])
            if i != j and i not in whole and against < 0 and gram[j, j] > 0:
                parts[i, j] -= against / gram[j, j]
    return shares @ parts
