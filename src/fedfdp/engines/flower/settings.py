"""The [flower] section of a run's config: where the coordinator listens, whom it lets in, and how long it waits."""

import ipaddress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from fedfdp.core.errors import SettingError


@dataclass(frozen=True)
class Flower:
    """Settings of a run across machines. A run in one process does not use them."""

    address: str = "127.0.0.1:9092"  # host:port where the coordinator listens
    nodes: dict[str, str | tuple[str, ...]] = field(default_factory=dict)  # name → key file(s), in summing order
    revoked: tuple[str, ...] = ()  # files of public keys that are never let in again, whoever lists them
    authority: str | None = None  # file of the certificate authority that nodes trust
    certificate: str | None = None  # file of the coordinator's TLS certificate
    key: str | None = None  # file of its private key
    plain_text: bool = False  # no TLS: on this machine only
    unsafe_seeded: bool = False  # nodes draw from the run's seed: on this machine only, to compare engines
    quorum: int | None = None  # uploads that a round needs; None: more than half of the nodes
    deadline: float = 600.0  # seconds for one round
    wait: float = 600.0  # seconds to wait for nodes, at the start and where there are fewer than the quorum
    register: str | None = None  # file that keeps how much each node's ledger showed, over all runs; None: none

    GONE: ClassVar = {"norm_ratio": 'use server.robust = "norm", which shortens what is too long and names its node'}
    """Settings of earlier versions, and what takes their place."""

    def __post_init__(self) -> None:
        host, _ = host_port("flower.address", self.address)
        if self.plain_text and not loopback(host):
            raise SettingError("flower.plain_text", True, f"only on this machine, not on {host}", "use TLS")
        if self.unsafe_seeded and not loopback(host):
            allowed = f"only on this machine, not on {host}: whoever knows the seed can undo the noise"
            raise SettingError("flower.unsafe_seeded", True, allowed, "leave it out")
        for name in ("deadline", "wait"):
            if not getattr(self, name) > 0:
                raise SettingError(f"flower.{name}", getattr(self, name), "seconds, more than 0")
        for name, files in self.nodes.items():
            if not isinstance(files, str) and not files:
                fix = "give the file of its public key, or take the node off the list"
                raise SettingError(f"flower.nodes.{name}", list(files), "a node is known by one key at least", fix)
        most = len(self.nodes) or self.quorum
        if self.quorum is not None and not 1 <= self.quorum <= (most or 1):
            raise SettingError("flower.quorum", self.quorum, f"1 to {most}, the number of nodes")

    def below(self, folder: Path) -> "Flower":
        """The same with its files' paths relative to a folder."""

        def place(path: str | None) -> str | None:
            return None if path is None else str(folder / path)

        below = {
            name: str(folder / given) if isinstance(given, str) else tuple(str(folder / path) for path in given)
            for name, given in self.nodes.items()
        }
        revoked = tuple(str(folder / path) for path in self.revoked)
        authority, certificate, key = place(self.authority), place(self.certificate), place(self.key)
        placed = replace(self, authority=authority, certificate=certificate, key=key)
        return replace(placed, nodes=below, revoked=revoked, register=place(self.register))

    def keys(self) -> dict[str, list[Path]]:
        """The files of each node's public keys: usually one."""
        return {name: [Path(p) for p in ((g,) if isinstance(g, str) else g)] for name, g in self.nodes.items()}

    @property
    def enough(self) -> int:
        """Uploads without which a round does not count."""
        return self.quorum or len(self.nodes) // 2 + 1


def host_port(setting: str, address: str) -> tuple[str, int]:
    """The host, without the brackets of an IPv6 address, and the port; a SettingError if they are not both there."""
    host, _, port = address.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    known = bare != host or ":" not in bare  # without brackets nobody can tell where an IPv6 address ends
    if not bare or not known or any(c.isspace() or c in "/[]" for c in bare):
        fix = "for example 0.0.0.0:9092, coordinator.example.org:9092 or [::1]:9092"
        raise SettingError(setting, address, "host:port", fix)
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65535):
        raise SettingError(setting, address, "host:port, with a port from 1 to 65535", "9092 is usual")
    return bare, int(port)


def loopback(host: str) -> bool:
    """Whether what is sent to this name or address stays on the machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
