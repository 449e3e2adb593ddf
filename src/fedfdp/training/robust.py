"""What the server takes instead of a mean where some clients may send poison, and whom it names.

Updates are released already, so all of this is free of privacy cost. A median, a trimmed mean and the scores count
every client once, whatever it declares: a client that claims a million records has no more say than the others. A copy
of every update of the round is kept.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from fedfdp.algorithms.base import PUBLIC, Upload
from fedfdp.core import weights as w
from fedfdp.core.errors import require
from fedfdp.core.weights import Weights

Rule: TypeAlias = Literal["median", "trimmed", "norm"]

TRIM = 0.2  # of the clients, at either end
LONG = 3.0  # how many times as long as expected an update must be, in the mean over rounds
APART = 4.0  # how many times the usual spread its length, or its direction, must be from the other clients'
AGAINST = 3.0  # how many standard errors below 0 the direction must be
FEW = 5  # rounds before a direction is judged
MOST_SHOWN = 50  # clients whose scores a summary keeps, besides those that are named


@dataclass(frozen=True)
class Conduct:
    """How one client's updates compare with the others', summed over the rounds that it took part in."""

    rounds: int = 0
    length: float = 0.0  # Σ ln(length over expected length)
    toward: float = 0.0  # Σ cosine with the direction of all others
    toward_squared: float = 0.0
    broken: int = 0  # rounds in which it sent NaN or infinity, which were left out

    def then(self, length: float, toward: float) -> "Conduct":
        """With one more round."""
        toward_squared = self.toward_squared + toward**2
        return Conduct(self.rounds + 1, self.length + length, self.toward + toward, toward_squared, self.broken)

    @property
    def ratio(self) -> float:
        """Its length over the expected one, in the geometric mean."""
        return math.exp(self.length / self.rounds) if self.rounds else 1.0

    @property
    def cosine(self) -> float:
        return self.toward / self.rounds if self.rounds else 0.0

    @property
    def against(self) -> bool:
        """Whether it pulls the other way beyond chance."""
        if self.rounds < FEW:
            return False
        spread = math.sqrt(max(self.toward_squared / self.rounds - self.cosine**2, 0.0) / (self.rounds - 1))
        return self.cosine < -AGAINST * spread


def defended(
    rule: Rule,
    uploads: Iterable[Upload],
    known: Mapping[str, Conduct],
    noise: Callable[[Upload], float],
    *,
    trim: float | None = None,
    norm: float | None = None,
) -> tuple[list[Upload], dict[str, Conduct]]:
    """The uploads that the method's mean is taken of instead, and every client's conduct with this round.

    For a median or a trimmed mean each upload carries the same centre, so that any weighted mean of them is the centre;
    numbers beside the update likewise. For a norm bound, updates are shortened.

    Args:
        rule: what takes the mean's place.
        uploads: of one round.
        known: conduct before it.
        noise: what privacy noise adds to ‖u_i‖² on average, which is public.
        trim: the part of the clients that a trimmed mean leaves out at either end; None: `TRIM`.
        norm: the longest that an update may be; None: the median of the lengths of the round.
    """
    conduct, kept = dict(known), list[Upload]()
    for upload in uploads:
        if w.all_finite(upload.update):
            kept.append(replace(upload, update=w.clone(upload.update)))  # it may be a view into a buffer of many
        else:
            before = conduct.get(upload.client, Conduct())
            conduct[upload.client] = replace(before, broken=before.broken + 1)
    if not kept:
        return [], conduct
    check_same_width(rule, [upload.update for upload in kept[1:]], kept[0].update)
    lengths = np.array([math.sqrt(w.squared_norm(upload.update)) for upload in kept])
    _note(conduct, kept, lengths, np.array([noise(upload) for upload in kept]))
    if rule == "norm":
        most = float(np.median(lengths)) if norm is None else norm
        factors = [min(1.0, most / length) if length else 1.0 for length in lengths.tolist()]
        cut = zip(kept, factors, strict=True)
        return [u if f == 1.0 else replace(u, update=w.multiply(u.update, f)) for u, f in cut], conduct
    left = _left_out(rule, len(kept), TRIM if trim is None else trim)
    like = kept[0].update
    columns = zip(*(upload.update.vectors for upload in kept), strict=True)
    middle = Weights(like.shapes, tuple(_centre(torch.stack(rows), left) for rows in columns), like.homes)
    same: dict[str, object] = {"update": middle, **_numbers(kept, left)}
    return [replace(upload, **same) for upload in kept], conduct  # type: ignore[arg-type]


def check_same_width(rule: Rule | None, others: Iterable[Weights], first: Weights | nn.Module) -> None:
    """Raises where some models are narrower than the first: their numbers have fewer votes."""
    whole = dict(first.named_parameters()) if isinstance(first, nn.Module) else first
    alike = rule is None or all(tensor.shape == whole[name].shape for one in others for name, tensor in one.items())
    require(alike, "server.robust", rule, "not for models of different width", "leave model.widths out")


def _left_out(rule: Rule, clients: int, trim: float) -> int:
    """How many values are left out at either end; all but the middle one or two for a median."""
    most = (clients - 1) // 2
    return most if rule == "median" else min(math.ceil(trim * clients - 1e-9), most)


def _centre(rows: Tensor, left: int) -> Tensor:
    """Of each column, the mean of its values without so many of the lowest and of the highest."""
    return rows.sort(dim=0).values[left : len(rows) - left].mean(dim=0)


def _numbers(uploads: Sequence[Upload], left: int) -> dict[str, float]:
    """The centre of every number that clients release beside their updates, such as a loss."""
    names = [field.name for field in fields(uploads[0]) if field.name not in (*PUBLIC, "update")]
    found = {name: [getattr(upload, name) for upload in uploads] for name in names}
    numbers = {name: values for name, values in found.items() if all(isinstance(value, float) for value in values)}
    return {name: float(_centre(torch.tensor(values, dtype=torch.float64), left)) for name, values in numbers.items()}


def _note(conduct: dict[str, Conduct], uploads: Sequence[Upload], lengths: np.ndarray, noise: np.ndarray) -> None:
    """Length and direction of each update, beside what is expected of it and where the others go.

    The expected length is that of the median client without noise, and this client's own noise. The direction of the
    others is the sum of their updates at length 1, so that no client makes it by itself; their noise is not this one's.
    """
    expected = np.sqrt(np.median(np.maximum(lengths**2 - noise, 0.0)) + noise)
    total = w.zeros_like(uploads[0].update)
    for upload, length in zip(uploads, lengths.tolist(), strict=True):
        w.add_(total, upload.update, scale=1 / length if length else 0.0)
    square = w.squared_norm(total)
    for upload, length, usual in zip(uploads, lengths.tolist(), expected.tolist(), strict=True):
        along = w.product(upload.update, total) / length if length else 0.0  # with its own length 1 in it
        others = math.sqrt(max(square - 2 * along + 1, 0.0)) if length else 0.0
        toward = (along - 1) / others if others else 0.0
        ratio = math.log(length / usual) if length and usual else 0.0
        conduct[upload.client] = conduct.get(upload.client, Conduct()).then(ratio, toward)


def named(conduct: Mapping[str, Conduct]) -> dict[str, str]:
    """The clients whose updates look poisoned, each with the reason."""
    if not conduct:
        return {}
    length, spread = _usual([math.log(one.ratio) for one in conduct.values()])
    longest = max(math.log(LONG), length + APART * spread)
    cosine, spread = _usual([one.cosine for one in conduct.values()])
    least = cosine - APART * spread if cosine > 0 else -math.inf  # holders unlike each other pull any way
    found = {}
    for name, one in conduct.items():
        reasons = []
        if one.broken:
            reasons.append(f"sent NaN or infinity in {one.broken} rounds")
        if math.log(one.ratio) > longest:
            reasons.append(f"its updates are {one.ratio:.1f} times as long as expected")
        if one.against and one.cosine < least:
            reasons.append(
                f"its updates point away from all others' (cosine {one.cosine:.2g} over {one.rounds} rounds)"
            )
        if reasons:
            found[name] = "; ".join(reasons)
    return found


def _usual(values: Sequence[float]) -> tuple[float, float]:
    """The median, and the spread that most values have around it; both whatever a few of them are."""
    middle = float(np.median(values))
    return middle, 1.4826 * float(np.median(np.abs(np.array(values) - middle)))


def summed_up(conduct: Mapping[str, Conduct]) -> dict[str, object]:
    """What a summary keeps: who is named and why, and the scores; of many clients, of those that are named alone."""
    reasons = named(conduct)
    shown = conduct if len(conduct) <= MOST_SHOWN else reasons
    scores = {name: conduct[name] for name in sorted(shown)}
    return {
        "named": reasons,
        "scores": {name: {"rounds": s.rounds, "length": s.ratio, "cosine": s.cosine} for name, s in scores.items()},
    }
