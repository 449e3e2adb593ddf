"""Three classes of wine at three growers, from arrays in Python: 178 records, so privacy takes much noise.

    python examples/wine.py

Growers keep different mixes of the three grapes. Columns are scaled by ranges that a chemist knows beforehand; what is
read from the records themselves would not be private.
"""

import numpy as np
import torch
from sklearn.datasets import load_wine

import fedfdp

RANGES = {
    "alcohol": (8, 16),
    "malic_acid": (0, 6),
    "ash": (1, 4),
    "alcalinity_of_ash": (10, 30),
    "magnesium": (70, 160),
    "total_phenols": (0, 4),
    "flavanoids": (0, 5),
    "nonflavanoid_phenols": (0, 1),
    "proanthocyanins": (0, 4),
    "color_intensity": (1, 13),
    "hue": (0.4, 1.8),
    "od280/od315_of_diluted_wines": (1, 4),
    "proline": (200, 1700),
}
MIX = {"Adige": (0.6, 0.2, 0.3), "Bruna": (0.3, 0.2, 0.6), "Corvo": (0.1, 0.6, 0.1)}  # share of each grape


def growers(seed: int = 0) -> fedfdp.Federation:
    data, rng = load_wine(), np.random.default_rng(seed)
    low, high = np.array([RANGES[name] for name in data.feature_names]).T
    x = np.clip(2 * (data.data - low) / (high - low) - 1, -1, 1).astype(np.float32)
    names = list(MIX)
    owner = np.array([rng.choice(names, p=[MIX[name][grape] for name in names]) for grape in data.target])
    return fedfdp.Federation.from_clients({n: (x[owner == n], data.target[owner == n]) for n in names}, classes=3)


def main(seed: int = 0) -> tuple[dict, dict]:
    holders, model = growers(seed), torch.nn.Linear(13, 3)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    plain = fedfdp.train(model, holders, algorithm=fedfdp.FedAvg(lr=1.0, batch_size=16), rounds=40, seed=seed).summary
    private = fedfdp.train(
        model,
        holders,
        algorithm=fedfdp.FedFDP(lr=2.0, server_lam=1.0, loss_clip=1.5),
        privacy=fedfdp.DPSGD(epsilon=3.0, delta=1e-4, sigma=3.61, q=0.5, clip=0.5, sigma_loss=15.0),
        server=fedfdp.ServerOptimizer(average=0.9),
        rounds=30,
        seed=seed,
    ).summary
    for name, found in ("FedAvg", plain), (f"FedFDP, ε = {private['epsilon']:.2f}", private):
        print(f"{name}: accuracy {found['accuracy']:.1%}, worst grower {found['worst_accuracy']:.1%}")
    return plain, private


if __name__ == "__main__":
    main()
