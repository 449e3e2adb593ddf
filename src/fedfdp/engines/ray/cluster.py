"""The connection to a cluster, and whether it has room. Both are looked at before a run has a folder or a charge.

Ray itself waits without end for a machine that does not answer, or for cores that are not there.
"""

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray

from fedfdp.core.errors import SettingError, require
from fedfdp.engines.ray.settings import Ray

log = logging.getLogger("fedfdp.ray")

SECONDS_TO_ANSWER = 5.0  # a machine that takes longer to accept a connection is no place for a round's messages
START = "start one: ray start --head"


@contextmanager
def opened(settings: Ray, clients: int) -> Iterator[int]:
    """Holds a cluster with room for the workers of so many clients: how many. Ends it if it was started here."""
    started = connect(settings.address)
    try:
        yield workers_for(settings, clients)
    finally:
        if started:
            ray.shutdown()


def connect(address: str | None, setting: str = "ray.address") -> bool:
    """Connects to a cluster unless this process is connected already; whether one was started here."""
    if ray.is_initialized():
        return False
    elsewhere, around = address, os.environ.get("RAY_ADDRESS")
    if around and elsewhere in (None, "", "auto"):  # for Ray, too, it comes before what auto would find
        elsewhere, setting = around, "RAY_ADDRESS"
    if elsewhere:
        check_answers(elsewhere, setting)
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    for last in (False, False, True):
        try:
            if elsewhere:
                ray.init(address=elsewhere, **quiet)
            else:
                os.environ.setdefault("RAY_worker_niceness", "0")  # or workers wait for all other programs
                ray.init(include_dashboard=False, **quiet)
            break
        except Exception as error:  # what Ray raises here has no class of its own
            ray.shutdown()
            if elsewhere or last:
                reason = str(error).strip().partition("\n")[0]
                raise SettingError(setting, elsewhere, f"no cluster: {reason:.100}", START) from None
            log.warning("the cluster did not start in time, as on a busy machine; trying again")
    return not elsewhere


def check_answers(address: str, setting: str = "ray.address") -> None:
    """Raises if nothing listens at host:port or ray://host:port. Other addresses, such as auto, are left to Ray."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or "://" in host:
        return
    require(port.isdecimal(), setting, address, "no host:port", "the port of a cluster is 6379 as a rule")
    try:
        socket.create_connection((host.strip("[]"), int(port)), SECONDS_TO_ANSWER).close()
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SettingError(setting, address, f"no cluster: nothing answers there ({reason})", START) from None


def workers_for(settings: Ray, clients: int) -> int:
    """How many workers so many clients get. Raises if the cluster cannot hold them: Ray would wait without end."""
    most = room(settings.cpus, settings.gpus)
    wanted = min(settings.workers or most, clients)
    if 0 < wanted <= most:
        return wanted
    has = f"the cluster has {_text(total('CPU'), total('GPU'))}"
    each = _text(settings.cpus, settings.gpus)
    if most:
        fix = f"set ray.workers={most}, or leave it out"
        raise SettingError("ray.workers", settings.workers, f"{has}: room for {most} workers with {each} each", fix)
    none = f"{has}: no machine of it holds a worker with {each}"
    if settings.gpus and room(settings.cpus, 0):
        largest = max(node.get("GPU", 0.0) for node in machines() if _fit(node, settings.cpus, 0))
        fix = f"set ray.gpus={largest:g} or less" if largest else "set ray.gpus=0, which computes on cores"
        raise SettingError("ray.gpus", settings.gpus, none, fix)
    largest = max((node.get("CPU", 0.0) for node in machines()), default=0.0)
    fix = f"set ray.cpus={largest:g} or less" if largest else "add a machine with cores to it"
    raise SettingError("ray.cpus", settings.cpus, none, fix)


def room(cpus: float, gpus: float) -> int:
    """How many workers of this size the cluster holds; each lies on one machine."""
    return sum(_fit(node, cpus, gpus) for node in machines())


def _fit(node: dict[str, float], cpus: float, gpus: float) -> int:
    fit = int(node.get("CPU", 0.0) / cpus + 1e-9)
    if not gpus:
        return fit
    there = node.get("GPU", 0.0)
    each = int(there) * int(1 / gpus + 1e-9) if gpus < 1 else int(there / gpus)  # a share is of one processor
    return min(fit, each)


def machines() -> list[dict[str, float]]:
    """What each machine of the cluster has, in all: what other programs use now becomes free again."""
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [node["Resources"] for node in nodes if node["Alive"]]


def total(kind: str) -> float:
    """What all machines have together of "CPU" or "GPU"."""
    return sum(node.get(kind, 0.0) for node in machines())


def _text(cpus: float, gpus: float) -> str:
    cores = f"{cpus:g} core" + ("s" if cpus != 1 else "")
    return f"{cores} and {gpus:g} graphics processor" + ("s" if gpus != 1 else "")
