"""The [ray] section of a run's config: which cluster, and how many workers. It is also the engine's factory."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedfdp.core.errors import SettingError, require
from fedfdp.core.importing import imported

if TYPE_CHECKING:
    from fedfdp.engines.ray.engine import RayEngine


@dataclass(frozen=True)
class Ray:
    """Settings of a run whose clients are computed by the workers of a Ray cluster. They decide no ledger and no noise.

    From Python: `fedfdp.train(…, engine=Ray(workers=4))`.
    """

    address: str | None = None  # of a running cluster, or "auto"; None: RAY_ADDRESS, or else one on this machine
    workers: int | None = None  # that share the clients; None: as many as it has room for, one per core as a rule
    cpus: float = 1.0  # cores of each worker
    gpus: float = 0.0  # graphics processors of each worker; above 0, workers compute there

    def __post_init__(self) -> None:
        fits = self.workers is None or 1 <= self.workers <= 10_000
        require(fits, "ray.workers", self.workers, "from 1 to 10000", "leave it out for one per core")
        require(0 < self.cpus <= 1024, "ray.cpus", self.cpus, "above 0", "1 is usual")
        require(0 <= self.gpus <= 64, "ray.gpus", self.gpus, "0 or more", "0 computes on cores")
        whole = self.gpus <= 1 or self.gpus == int(self.gpus)
        require(whole, "ray.gpus", self.gpus, "above 1 only whole numbers", f"set ray.gpus={int(self.gpus)}")

    def __call__(self, *given: Any, **options: Any) -> "RayEngine":
        """The engine of one run: what `train` calls."""
        check_ray()
        make = imported("fedfdp.engines.ray.engine:RayEngine", "engine", "Class")  # here: it needs the library
        return make(self, *given, **options)  # type: ignore[no-any-return]

    @contextmanager
    def ready(self, clients: int) -> Iterator[None]:
        """Holds the cluster of a run with so many clients. Raises before the run's folder is made if it has no room."""
        check_ray()
        opened = imported("fedfdp.engines.ray.cluster:opened", "engine", "function")  # here: it needs the library
        with opened(self, clients):
            yield


def check_ray() -> None:
    """Raises where the library is not installed."""
    try:
        import ray  # noqa: F401
    except ImportError:
        raise SettingError("engine", "ray", "the library ray is missing", 'pip install "fedfdp[ray]"') from None


RAY = Ray()
