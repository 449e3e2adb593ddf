"""Writes clinics/: scikit-learn's 442 diabetes patients as one table for each of three clinics.

    python examples/diabetes/holders.py [SEED]

Clinics are unequal and see different patients: ordered by age, blurred by chance, and dealt out in that order.
"""

import csv
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_diabetes

SHARES = {"young": 0.2, "middle": 0.5, "old": 0.3}


def write(folder: Path, seed: int = 0) -> None:
    data, rng = load_diabetes(scaled=False), np.random.default_rng(seed)
    age = data.data[:, 0]
    order = np.argsort(age + rng.normal(scale=age.std(), size=len(age)))
    parts = np.split(order, (np.cumsum(list(SHARES.values()))[:-1] * len(order)).astype(int))
    folder.mkdir(exist_ok=True)
    for clinic, rows in zip(SHARES, parts, strict=True):
        with (folder / f"{clinic}.csv").open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow([*data.feature_names, "progression"])
            for row in rows:
                age_, sex, *rest = data.data[row]
                out.writerow([int(age_), int(sex), *rest, data.target[row]])


if __name__ == "__main__":
    write(Path(__file__).with_name("clinics"), int(sys.argv[1]) if len(sys.argv) > 1 else 0)
