"""Looks over a node or a coordinator: one finding for each thing that ends a deployment sooner or later.

It changes nothing and asks no node anything. Records are read only to count them.
"""

import datetime
import errno
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
from fedfdp.deploy.coordinator import check, load
from fedfdp.deploy.node import own_records
from fedfdp.deploy.spending import date_of, spending
from fedfdp.engines.flower.book import LEDGER
from fedfdp.engines.flower.node import STOPPED
from fedfdp.engines.flower.policy import NodeConfig, load_node
from fedfdp.engines.flower.security import (
    RENEW,
    certificates_in,
    fingerprint,
    key_bytes,
    read_private_key,
    server_certificate,
)
from fedfdp.engines.flower.settings import Flower, host_port
from fedfdp.engines.flower.superlink import certificates_of, registered
from fedfdp.engines.flower.unnoised import unnoised
from fedfdp.privacy.accounting import delta_warning
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
    yield _tried("port", lambda: _reached(config))
    if not config.plain_text:
        yield _tried("certificate", lambda: _authorities(Path(config.certificate or "")))
        yield _tried("key", lambda: _key(Path(config.key or "")))
    yield _tried("data", lambda: _data(config))
    yield _tried("budget", lambda: _budget(path, config))
    if (noise := _tried("noise", lambda: _noise(config))).said:
        yield noise
    if (folder / STOPPED).exists():
        yield Finding("state", "bad", f"it refuses rounds after an error: read {folder / STOPPED}, and delete it")


def _coordinator(config: Config, settings: Flower) -> Iterator[Finding]:
    yield _tried("clock", lambda: _clock(settings.certificate))
    yield _disk(Path("runs") if Path("runs").is_dir() else Path())
    yield _tried("port", lambda: _listens(settings.address))
    if not settings.plain_text:
        yield _tried("certificate", lambda: _server_certificate(settings))
        yield _tried("key", lambda: _node_keys(settings))
    yield _tried("settings", lambda: _settings(config, settings))
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
    host, port = host_port("server", config.server)
    context = ssl.create_default_context(cafile=config.certificate)
    plain = socket.create_connection((host, port), PATIENCE)
    return context.wrap_socket(plain, server_hostname=host)


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


def _reached(config: NodeConfig) -> tuple[State, str]:
    try:
        with socket.create_connection(host_port("server", config.server), PATIENCE):
            pass
        if not config.plain_text:
            certificates_in(Path(config.certificate or ""))  # a file that is none says nothing of the other side
            with _connected(config):
                pass
    except ssl.SSLError as error:
        return "bad", f"{config.server} is not who it should be ({error.reason}); ask for its ca.crt"
    except (socket.gaierror, UnicodeError):
        return "bad", f"server = {config.server!r}: {_NO_NAME}"
    except OSError as error:
        why = f"nobody listens at {config.server} ({error.strerror or 'no answer'})"
        return "look", f"{why}; that is so between runs, otherwise ask its owner"
    return "ok", f"{config.server} answers"


def _listens(address: str) -> tuple[State, str]:
    host, port = host_port("flower.address", address)
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (socket.gaierror, UnicodeError):
            return "bad", f"flower.address = {address!r}: {_NO_NAME}"
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return "look", f"{address} is taken: by a run that goes on, or by others"
            fix = "give an address of this machine, and a port from 1024 on"
            return "bad", f"flower.address = {address!r} cannot be listened on ({error.strerror}); {fix}"
    return "ok", f"{address} is free"


_NO_NAME = "there is no such name; check it, and the network"


def _settings(config: Config, settings: Flower) -> tuple[State, str]:
    check(config, settings)
    kept = f"; what they showed is kept in {settings.register}" if settings.register else ""
    return "ok", f"nodes listed: {len(settings.nodes)}; enough for a round: {settings.enough}{kept}"


def _expiry(found: list[x509.Certificate], name: Path, renew: str) -> tuple[State, str]:
    """By the last of them: a file may hold the next authority beside the present one."""
    left = (max(each.not_valid_after_utc for each in found) - datetime.datetime.now(datetime.UTC)).days
    if left < 0:
        return "bad", f"{name} ended {-left} days ago; {renew}"
    return ("look" if left < SOON else "ok"), f"{name} is valid for {left} days{f'; {renew}' if left < SOON else ''}"


def _authorities(path: Path) -> tuple[State, str]:
    return _expiry(certificates_in(path), path, "ask the coordinator for its new ca.crt, and add it to this file")


def _server_certificate(settings: Flower) -> tuple[State, str]:
    files = certificates_of(settings)
    return _expiry([server_certificate(files)], Path(files.certificate), RENEW)


def _key(path: Path) -> tuple[State, str]:
    public = key_bytes(read_private_key(path).public_key())
    if path.stat().st_mode & 0o077:
        return "bad", f"{path} can be read by others; run: chmod 600 {path}"
    return "ok", f"{path} has the fingerprint {fingerprint(public)}; the coordinator's doctor shows the same"


def _node_keys(settings: Flower) -> tuple[State, str]:
    shown = ", ".join(f"{name} {fingerprint(key)}" for key, name in registered(settings).items())
    return "ok", shown or "no node is listed"


def _data(config: NodeConfig) -> tuple[State, str]:
    (held,) = own_records(config.name, config.data).federation.clients
    said = f"{len(held.train) + len(held.test):,} records can be read"
    warning = delta_warning(config.policy.delta, held.size)
    return ("look", f"{said}; policy.{warning}") if warning else ("ok", said)


def _noise(config: NodeConfig) -> tuple[State, str]:
    """What leaves, or left, without noise; nothing is said if nothing does."""
    lines = []
    if config.policy.without_privacy:
        allows = "any coordinator may ask for rounds without noise, which no ε covers"
        lines.append(f"policy.without_privacy = true: {allows}; leave it out unless you mean that")
    if found := unnoised(Path(config.folder), config.second):
        lines.append(f"answered without noise so far: {found.in_words()}")
    return ("look", "; ".join(lines)) if lines else ("ok", "")


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
