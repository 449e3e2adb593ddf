"""Writes holders.csv: 569 tumours of scikit-learn's breast cancer data at five hospitals of unequal size.

    python examples/breast_cancer/holders.py [SEED]

Hospitals see different patients: tumours are ordered by size, blurred by chance, and dealt out in that order, so some
hospitals see mostly large, malignant ones and others mostly small, benign ones. Another seed is another partition.
"""

import csv
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer

SHARES = {"amber": 0.36, "birch": 0.26, "cedar": 0.18, "dune": 0.12, "elm": 0.08}


def write(path: Path, seed: int = 0) -> None:
    data, rng = load_breast_cancer(), np.random.default_rng(seed)
    size = data.data[:, 0]
    order = np.argsort(size + rng.normal(scale=size.std(), size=len(size)))
    names = rng.permutation(list(SHARES))
    ends = np.cumsum([SHARES[name] for name in names])
    owner = names[np.searchsorted(ends, (np.arange(len(order)) + 0.5) / len(order))]
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["hospital", *data.feature_names, "diagnosis"])
        for hospital, row in zip(owner, order, strict=True):
            out.writerow([hospital, *data.data[row], data.target_names[data.target[row]]])


if __name__ == "__main__":
    write(Path(__file__).with_name("holders.csv"), int(sys.argv[1]) if len(sys.argv) > 1 else 0)
