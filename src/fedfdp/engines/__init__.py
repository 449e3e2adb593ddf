"""Ways to reach the clients of a round, by name or by import path. A new one is a file here and a line in `ENGINES`."""

from typing import TYPE_CHECKING, Protocol

from fedfdp.core.errors import SettingError, nearest
from fedfdp.core.importing import imported

if TYPE_CHECKING:
    from fedfdp.algorithms.base import Algorithm
    from fedfdp.data import Federation
    from fedfdp.models.learner import Learner
    from fedfdp.privacy.dpsgd import DPSGD
    from fedfdp.privacy.ledger import LedgerBook
    from fedfdp.privacy.noise.randomness import Randomness
    from fedfdp.training.protocols import Engine


class EngineFactory(Protocol):
    """A class or a function that makes the engine of one run from what the run gives it."""

    def __call__(
        self,
        federation: "Federation",
        learner: "Learner",
        algorithm: "Algorithm",
        /,
        *,
        privacy: "DPSGD | None",
        randomness: "Randomness",
        book: "LedgerBook | None",
        fused: bool,
    ) -> "Engine":
        """`book` holds every client's ledger: it is charged before a batch is drawn. None without privacy."""


# Where the factory of each engine is, imported when it is first used; None where records are not in this process.
ENGINES = {"local": "fedfdp.engines.local:LocalEngine", "ray": "fedfdp.engines.ray.settings:RAY", "flower": None}


def check_engine(name: str) -> None:
    """Raises for a name that is neither known nor an import path."""
    if name not in ENGINES and ":" not in name:
        raise SettingError("engine", name, nearest(name, ENGINES), "or package.module:Class")


def find_engine(name: str) -> EngineFactory:
    """The factory of an engine whose clients are all in this process."""
    check_engine(name)
    place = ENGINES.get(name, name)
    if place is None:
        fix = "start it with fedfdp server, or try it on one machine with fedfdp deploy local"
        raise SettingError("engine", name, "not run by this command", fix)
    return imported(place, "engine", "Class")  # type: ignore[no-any-return]
