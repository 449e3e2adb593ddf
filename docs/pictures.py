"""The pictures of concepts.md, drawn from small computations that this script makes: python docs/pictures.py

Nothing in them is sketched: every point is a release, a loss or a gradient of a model that was trained here.
"""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

import fedfdp
from fedfdp.audit import ReleaseGame, Trials
from fedfdp.data import load
from fedfdp.fairness.coefficients import BoundedClip, PaperClip
from fedfdp.models import build
from fedfdp.models.losses import cross_entropy
from fedfdp.privacy.accounting import Event, epsilon
from fedfdp.privacy.noise.randomness import Seeded

IMAGES = Path(__file__).parent / "images"
BLUE, RED, GREY = "#1f5fa8", "#c2452d", "#777777"
plt.rcParams |= {"svg.hashsalt": "fedfdp", "font.size": 11, "axes.spines.top": False, "axes.spines.right": False}


def save(figure: Any, name: str) -> None:
    figure.tight_layout()
    figure.savefig(IMAGES / name, metadata={"Date": None}, facecolor="white")
    plt.close(figure)


def epsilon_picture() -> None:
    """What one upload shows of one record, and how the ε of uploads adds up."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8))
    game = ReleaseGame(sigma=2.0, q=1.0, clip=1.0)
    inside, outside = game.play(Trials(20_000, Seeded(0)))
    for world, colour, label in (outside, GREY, "record left out"), (inside, RED, "record in the data"):
        left.hist(world["gradient"], 60, density=True, alpha=0.55, color=colour, label=label, histtype="stepfilled")
    left.set(
        title="one upload, 20,000 times each way (σ = 2)", xlabel="upload along the record's gradient, in C", yticks=[]
    )
    left.set_ylim(0, 0.26)
    left.legend(frameon=False, loc="upper left")
    rounds = np.unique(np.geomspace(1, 2000, 24).astype(int))
    for sigma, colour in (1.5, RED), (2.0, BLUE), (3.0, GREY):
        spent = [epsilon([Event(q=0.05, sigmas=(sigma, 5.0), count=int(t))], delta=1e-5) for t in rounds]
        right.plot(rounds, spent, color=colour)
        right.annotate(
            f"σ = {sigma:g}", (rounds[-1], spent[-1]), xytext=(4, -4), textcoords="offset points", color=colour
        )
    right.axhline(3.52, color="black", linewidth=0.8, linestyle=":")
    right.annotate("a budget of 3.52", (2240, 3.52), xytext=(0, -14), textcoords="offset points", ha="right")
    right.set(title="what all uploads together cost", xlabel="rounds", ylabel="ε at δ = 1e-5", xlim=(0, 2250))
    save(figure, "epsilon.svg")


def digits_at(holders: fedfdp.Federation, *, server_lam: float, rounds: int = 60) -> fedfdp.Result:
    return fedfdp.train(
        build("linear", input_shape=(1, 8, 8), outputs=10, seed=0),
        holders,
        algorithm=fedfdp.FedFDP(lr=1.0, server_lam=server_lam, smoothing=0.0),
        rounds=rounds,
        seed=0,
    )


def losses_of(result: fedfdp.Result, holders: fedfdp.Federation) -> list[float]:
    with torch.no_grad():
        return [float(cross_entropy(result.model(x), y).mean()) for x, y in (c.test.take() for c in holders.clients)]


def psi_picture() -> None:
    """Two models with their losses at each holder: Ψ is the spread around the mean."""
    holders = fedfdp.Federation.partition(load("digits"), clients=8, beta=0.1, seed=0)
    shares = np.array([client.size for client in holders.clients], float)
    shares /= shares.sum()
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), sharey=True)
    for axis, server_lam, colour in zip(axes, (0.0, 5.0), (RED, BLUE), strict=True):
        losses = np.array(losses_of(digits_at(holders, server_lam=server_lam), holders))
        mean = float(shares @ losses)
        psi = float(shares @ (losses - mean) ** 2)
        places = np.arange(len(losses))
        axis.vlines(places, mean, losses, color=colour, linewidth=2)
        axis.scatter(places, losses, s=1600 * shares, color=colour, zorder=3, alpha=0.85)
        axis.axhline(mean, color="black", linewidth=1)
        axis.annotate(f"mean {mean:.3f}", (3.5, mean), xytext=(0, 4), textcoords="offset points", ha="center")
        axis.set(title=f"server_lam = {server_lam:g}: Ψ = {psi:.4f}", xlabel="holder", xticks=places)
        axis.margins(x=0.1, y=0.15)
    axes[0].set_ylabel("loss on the holder's test records")
    save(figure, "psi.svg")


def norms_and_losses(model: torch.nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Gradient norm and loss of each record, one by one."""
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def loss(w: dict[str, Tensor], one: Tensor, label: Tensor) -> Tensor:
        return cross_entropy(functional_call(model, w, (one[None],)), label[None])[0]

    gradients = vmap(grad(loss), in_dims=(None, 0, 0))(weights, x, y)
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients.values()]).norm(dim=0)
    with torch.no_grad():
        return norms, cross_entropy(model(x), y)


def clipping_picture() -> None:
    """What fairness wants of each record, and what is left of it after clipping."""
    holders = fedfdp.Federation.partition(load("digits"), clients=8, beta=0.1, seed=0)
    model = digits_at(holders, server_lam=0.0, rounds=5).model
    norms, losses = norms_and_losses(model, holders.x, holders.y)
    lam, mean, clip = 0.5, float(losses.mean()), 0.1
    wanted = 1 + lam * (losses - mean)
    panels = {
        "wanted: s = 1 + λ(loss − mean)": wanted,
        f"paper's coefficients, C = {clip}": PaperClip(clip, lam, mean)(losses, norms) * norms / clip,
        f"bounded coefficients, C = {clip}": BoundedClip(clip, lam, mean, 2.0)(losses, norms) * norms / clip,
    }
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.8))
    for axis, (title, values), colour in zip(axes, panels.items(), (GREY, RED, BLUE), strict=True):
        axis.scatter(losses, values, s=6, alpha=0.4, color=colour, edgecolors="none", rasterized=True)
        axis.set(title=title, xlabel="the record's loss", xlim=(0, 4), ylim=(0, 2.6 if colour == GREY else 1.1))
    axes[0].set_ylabel("weight")
    axes[1].set_ylabel("length of the contribution, in C")
    axes[1].text(0.1, 0.06, f"{float((norms > clip).float().mean()):.0%} of the gradients\nare longer than C")
    save(figure, "clipping.svg")


if __name__ == "__main__":
    torch.set_num_threads(1)
    epsilon_picture()
    psi_picture()
    clipping_picture()
