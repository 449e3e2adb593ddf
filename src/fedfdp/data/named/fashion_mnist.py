"""FashionMNIST: clothes in ten classes, 28 × 28 pixels, in files like those of MNIST."""

from fedfdp.data.named.entry import Entry
from fedfdp.data.named.idx import IDX, IDX_GZ
from fedfdp.data.named.origins import Apt, Mirror

FASHION_MNIST = Entry(
    name="fashion-mnist",
    aliases=("fashion", "fashionmnist"),
    records=70_000,
    train=60_000,
    shape=(1, 28, 28),
    classes=10,
    brightest=255,
    sha256="2cbc59191665e1ba3f2494648f17edac5974f748ab89fb2ae05597d658161f54",
    layouts=(IDX,),
    origins=(
        Apt("dataset-fashion-mnist"),
        Mirror("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com", IDX_GZ),
    ),
)
