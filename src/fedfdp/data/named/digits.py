"""scikit-learn's digits of 8 × 8 pixels. They are installed with it: no files, no origins, always there."""

import numpy as np

from fedfdp.data.named.entry import Embedded, Images
from fedfdp.data.named.layout import Records


def _read() -> Records:
    from sklearn.datasets import load_digits

    digits = load_digits()
    return Records(digits.images.astype(np.uint8)[:, None], digits.target.astype(np.uint8))


DIGITS = Images(
    name="digits",
    records=1_797,
    train=1_797,
    shape=(1, 8, 8),
    classes=10,
    brightest=16,
    sha256="87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826",
    embedded=Embedded("scikit-learn", _read),
)
