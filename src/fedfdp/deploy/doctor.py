"""Looks over a node or a coordinator: one finding for each thing that ends a deployment sooner or later.

It changes nothing and asks no node anything. Records are read only to count them.
"""

import datetime
import shutil
import socket
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Literal

from cryptography import x509

from fedfdp.core.errors import FedFDPError, SettingError
from fedfdp.core.settings import read_toml
from fedfdp.deploy.coordinator import load
from fedfdp.deploy.node import own_records
from fedfdp.deploy.spending import date_of, spending
from fedfdp.engines.flower.book import LEDGER
from fedfdp.engines.flower.node import STOPPED
from fedfdp.engines.flower.policy import NodeConfig, load_node
from fedfdp.engines.flower.security import (
    certificates_in,
    fingerprint,
    key_bytes,
    read_private_key,
    read_public_key,
    server_key_fits,
)
from fedfdp.engines.flower.settings import Flower
from fedfdp.privacy.ledger.periods import utc_today
from fedfdp.runs.config import Config

SOON = 45  # days before the end of a certificate from which on it is told
SKEW = 120.0  # seconds between two clocks that need no word
LITTLE, TOO_LITTLE = 2**30, 100 * 2**20  # bytes
PATIENCE = 5.0  # seconds

State = Literal["ok", "look", "bad"]


@dataclass(frozen=True)
class Finding:
    """One line. `look`: it works today, and somebody should look. `bad`: it does not work."""

    what: str
    state: State
    said: str


def examine(path: Path) -> list[Finding]:
    """The findings for a node.toml, or for a run's config with a [flower] section."""
    values = read_toml(path)
    if "flower" in values:
        return list(_coordinator(*load(str(path))))
    if "server" in values or "policy" in values:
        return list(_node(load_node(path), path))
    fix = "give a node.toml, or a run's config with a [flower] section"
    raise SettingError("config", str(path), "neither a node's nor a coordinator's", fix)


def _node(config: NodeConfig, path: Path) -> Iterator[Finding]:
    folder = Path(config.folder)
    yield _tried("clock", lambda: _clock_of_node(config, folder))
    yield _disk(folder)
    yield _reached(config)
    if not config.plain_text:
        yield _tried("certificate", lambda: _authorities(Path(config.certificate or "")))
        yield _tried("key", lambda: _key(Path(config.key or "")))
    yield _tried("data", lambda: _data(config))
    yield _tried("budget", lambda: _budget(path, config))
    if (folder / STOPPED).exists():
        yield Finding("state", "bad", f"it refuses rounds after an error: read {folder / STOPPED}, and delete it")


def _coordinator(config: Config, settings: Flower) -> Iterator[Finding]:
    yield _tried("clock", lambda: _clock(settings.certificate))
    yield _disk(Path("runs") if Path("runs").is_dir() else Path())
    yield _listens(settings.address)
    if not settings.plain_text:
        yield _tried("certificate", lambda: _server_certificate(settings))
        yield _tried("key", lambda: _node_keys(settings))
    if not settings.nodes:
        yield Finding("nodes", "bad", "flower.nodes names nobody; add each node with its public key")
    privacy = config.privacy
    if privacy is None:
        yield Finding("budget", "look", "this run is without privacy: nodes refuse it unless their owners allow it")
    else:
        said = "no budget is set" if privacy.epsilon is None else f"ε = {privacy.epsilon:g} for each node"
        yield Finding("budget", "ok", f"{said}; what a node has left, its owner sees by: fedfdp node ledger")


def _tried(what: str, look: Callable[[], tuple[State, str]]) -> Finding:
    try:
        return Finding(what, *look())
    except (FedFDPError, OSError, ValueError) as error:
        return Finding(what, "bad", " ".join(str(error).split()))


def _disk(folder: Path) -> Finding:
    place = folder
    while not place.exists():
        place = place.parent
    try:
        with tempfile.NamedTemporaryFile(dir=place):
            pass
    except OSError as error:
        return Finding("disk", "bad", f"{place} cannot be written ({error.strerror}); give it to this user")
    free = shutil.disk_usage(place).free
    state: State = "bad" if free < TOO_LITTLE else "look" if free < LITTLE else "ok"
    return Finding("disk", state, f"{free / 2**30:.1f} GiB free at {place}{'' if state == 'ok' else '; make room'}")


def _clock_of_node(config: NodeConfig, folder: Path) -> tuple[State, str]:
    latest = date_of(folder / LEDGER) if (folder / LEDGER).is_file() else ""
    if latest > utc_today().isoformat():
        return "bad", f"today is {utc_today()}, and the ledger has a charge of {latest}; set the clock"
    there = _date_there(config)
    if there is not None:
        apart = abs((datetime.datetime.now(datetime.UTC) - there).total_seconds())
        if apart > SKEW:
            return "bad", f"{apart:.0f} seconds from the coordinator's clock; set both by a time server"
        return "ok", f"{utc_today()}, within {max(apart, 1):.0f} s of the coordinator's"
    return _clock(config.certificate)


def _clock(certificate: str | None) -> tuple[State, str]:
    now = datetime.datetime.now(datetime.UTC)
    for found in certificates_in(Path(certificate)) if certificate else ():
        if now < found.not_valid_before_utc:
            return "bad", f"{now:%Y-%m-%d %H:%M} UTC is before {certificate} was made; set the clock"
    return "ok", f"{now:%Y-%m-%d %H:%M} UTC; compared with certificates and the ledger only"


def _connected(config: NodeConfig) -> ssl.SSLSocket:
    host, _, port = config.server.rpartition(":")
    context = ssl.create_default_context(cafile=config.certificate)
    plain = socket.create_connection((host.strip("[]"), int(port)), PATIENCE)
    return context.wrap_socket(plain, server_hostname=host.strip("[]"))


def _date_there(config: NodeConfig) -> datetime.datetime | None:
    """The coordinator's clock, from the answer to an empty request; None if it cannot be asked now."""
    if config.plain_text:
        return None
    with suppress(OSError, ValueError, IndexError), _connected(config) as link:
        link.sendall(f"GET / HTTP/1.0\r\nHost: {config.server}\r\n\r\n".encode())
        head = b""
        while b"\r\n\r\n" not in head and len(head) < 2**16 and (more := link.recv(4096)):
            head += more
        (date,) = [line[5:] for line in head.decode("latin-1").split("\r\n") if line.lower().startswith("date:")]
        return parsedate_to_datetime(date.strip())
    return None


def _reached(config: NodeConfig) -> Finding:
    host, _, port = config.server.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), PATIENCE):
            pass
        if not config.plain_text:
            with _connected(config):
                pass
    except ssl.SSLError as error:
        return Finding("port", "bad", f"{config.server} is not who it should be ({error.reason}); ask for its ca.crt")
    except socket.gaierror:
        return Finding("port", "bad", f"server = {config.server!r}: there is no such name; check it, and the network")
    except OSError as error:
        why = f"nobody listens at {config.server} ({error.strerror or 'no answer'})"
        return Finding("port", "look", f"{why}; that is so between runs, otherwise ask its owner")
    return Finding("port", "ok", f"{config.server} answers")


def _listens(address: str) -> Finding:
    host, _, port = address.rpartition(":")
    family = socket.AF_INET6 if ":" in host.strip("[]") else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), int(port)))
        except OSError as error:
            return Finding(
                "port", "look", f"{address} is taken ({error.strerror}): by a run that goes on, or by others"
            )
    return Finding("port", "ok", f"{address} is free")


def _expiry(found: list[x509.Certificate], name: Path, renew: str) -> tuple[State, str]:
    """By the last of them: a file may hold the next authority beside the present one."""
    left = (max(each.not_valid_after_utc for each in found) - datetime.datetime.now(datetime.UTC)).days
    if left < 0:
        return "bad", f"{name} ended {-left} days ago; {renew}"
    return ("look" if left < SOON else "ok"), f"{name} is valid for {left} days{f'; {renew}' if left < SOON else ''}"


def _authorities(path: Path) -> tuple[State, str]:
    return _expiry(certificates_in(path), path, "ask the coordinator for its new ca.crt, and add it to this file")


def _server_certificate(settings: Flower) -> tuple[State, str]:
    for name in ("authority", "certificate", "key"):
        if getattr(settings, name) is None:
            raise SettingError(f"flower.{name}", None, "needed for TLS", "make one: fedfdp server --make-certificates")
    authorities = certificates_in(Path(settings.authority or ""))
    (own, *_) = certificates_in(Path(settings.certificate or ""))
    if not any(_signed(own, authority) for authority in authorities):
        return "bad", f"{settings.certificate} is not signed by {settings.authority}; use files that were made together"
    if not server_key_fits(Path(settings.key or ""), own):
        return "bad", f"{settings.key} is not the key of {settings.certificate}; use files that were made together"
    renew = "make new ones: fedfdp server --make-certificates FOLDER, and give every node its ca.crt"
    return _expiry([own], Path(settings.certificate or ""), renew)


def _signed(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except Exception:  # of cryptography, of several kinds
        return False
    return True


def _key(path: Path) -> tuple[State, str]:
    public = key_bytes(read_private_key(path).public_key())
    if path.stat().st_mode & 0o077:
        return "bad", f"{path} can be read by others; run: chmod 600 {path}"
    return "ok", f"{path} has the fingerprint {fingerprint(public)}; the coordinator's doctor shows the same"


def _node_keys(settings: Flower) -> tuple[State, str]:
    owners: dict[bytes, str] = {}
    for name, files in settings.keys().items():
        for file in files:
            if (other := owners.setdefault(read_public_key(file), name)) != name:
                return "bad", f"{name} and {other} have the same key; every node needs its own"
    shown = ", ".join(f"{name} {fingerprint(key)}" for key, name in owners.items())
    return "ok", shown or "no node is listed"


def _data(config: NodeConfig) -> tuple[State, str]:
    (held,) = own_records(config.name, config.data).federation.clients
    return "ok", f"{len(held.train) + len(held.test):,} records can be read"


def _budget(path: Path, config: NodeConfig) -> tuple[State, str]:
    if not (Path(config.folder) / LEDGER).is_file() and not config.second.is_file():
        return "ok", "no ledger yet: nothing was spent"
    found = spending(path)
    if found.warning:
        return "bad", found.warning
    said = "; ".join(f"{left.what}: {left.used:.4f} of {left.budget:g} used" for left in found.left)
    rounds = found.left[-1].rounds
    if rounds == 0:
        return "bad", f"{said}; no round like the last one fits: wait for the next period, or end here"
    return "ok", said if rounds is None else f"{said}; {rounds} more rounds like the last one fit"
