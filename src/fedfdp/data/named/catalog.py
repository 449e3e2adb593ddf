"""The datasets that are known by name. To add one, write its module and list its entry here."""

from pathlib import Path

from fedfdp.core.errors import SettingError, nearest
from fedfdp.data.files.paths import looks_like_path
from fedfdp.data.named.cifar10 import CIFAR10
from fedfdp.data.named.digits import DIGITS
from fedfdp.data.named.domain_digits import DOMAIN_DIGITS
from fedfdp.data.named.entry import Images, Table
from fedfdp.data.named.flights import FLIGHTS
from fedfdp.data.named.hospitals import HOSPITALS
from fedfdp.data.named.mnist import FASHION_MNIST, MNIST
from fedfdp.data.named.penguins import PENGUINS
from fedfdp.data.named.schools import SCHOOLS
from fedfdp.data.named.unemployment import UNEMPLOYMENT

_IMAGES = (MNIST, FASHION_MNIST, CIFAR10, DIGITS, DOMAIN_DIGITS)
_TABLES = (PENGUINS, FLIGHTS, HOSPITALS, SCHOOLS, UNEMPLOYMENT)
CATALOG: dict[str, Images | Table] = {entry.name: entry for entry in (*_IMAGES, *_TABLES)}


def named(source: str, folder: Path = Path()) -> bool:
    """Whether `data.source` means a dataset: a name in the catalog always does, an existing file or folder never."""
    return source in CATALOG or not (looks_like_path(source) or (folder / source).exists())


def find(name: str) -> Images | Table:
    """The dataset of this name or alias; upper and lower case are the same."""
    for entry in CATALOG.values():
        if name.lower() in (entry.name, *entry.aliases):
            return entry
    raise SettingError("data.source", name, f"no dataset has this name; {nearest(name, CATALOG)}", "or give a file")
