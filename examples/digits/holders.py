"""Writes offices/: scikit-learn's 1,797 handwritten digits as images, one folder for each of four post offices.

    python examples/digits/holders.py [SEED]

Offices are unequal and see different digits: each digit is dealt out by shares of its own.
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

OFFICES = ("east", "north", "south", "west")


def write(folder: Path, seed: int = 0) -> None:
    data, rng = load_digits(), np.random.default_rng(seed)
    shares = rng.dirichlet([0.5] * len(OFFICES), size=10)
    for number, (pixels, digit) in enumerate(zip(data.images, data.target, strict=True)):
        place = folder / rng.choice(OFFICES, p=shares[digit]) / str(digit)
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray((pixels * 255 / 16).astype(np.uint8)).save(place / f"{number}.png")


if __name__ == "__main__":
    write(Path(__file__).with_name("offices"), int(sys.argv[1]) if len(sys.argv) > 1 else 0)
