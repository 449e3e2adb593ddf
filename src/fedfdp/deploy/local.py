"""A whole deployment on one machine: real processes over loopback, TLS and node keys made on the fly.

For trying things out: each node holds a part of the config's data, and answers evaluation, which a real one does not.
"""

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import tomli_w

from fedfdp.core.errors import RunError, SettingError
from fedfdp.deploy.coordinator import Network, coordinate
from fedfdp.engines.flower.security import make_certificates, make_node_key
from fedfdp.engines.flower.settings import Flower
from fedfdp.engines.flower.superlink import listening
from fedfdp.runs.build import federation_of
from fedfdp.runs.config import Config
from fedfdp.runs.session import Result, Update

log = logging.getLogger("fedfdp.server")

STOP_SECONDS = 5.0


def deploy_local(
    config: Config,
    settings: Flower,
    *,
    out: Path,
    place: Path,
    on_update: Callable[[Update], None] | None = None,
    say: Callable[[str], None] = log.info,
) -> Result:
    """Runs a config with a process for each of its clients; keys, ledgers and logs are in `place`."""
    names = [client.name for client in federation_of(config).clients]
    settings = prepare(config, settings, place, names)
    nodes = [start_node(place / f"{name}.toml", place / f"{name}.log") for name in names]

    def check() -> None:
        if sum(node.poll() is None for node in nodes) < settings.enough:
            raise RunError("too few nodes are left for a round")

    try:
        with listening(settings) as link:
            network = Network(link.grid, link.node_ids, link.meter, check, link.owners)
            return coordinate(config, settings, network, out=out, on_update=on_update, say=say)
    except RunError as error:
        dead = [name for name, node in zip(names, nodes, strict=True) if node.poll() is not None]
        hint = f" ({', '.join(dead)} ended: see {place}/*.log)" if dead else ""
        raise RunError(f"{error}{hint}") from None
    finally:
        stop(nodes)


def prepare(config: Config, settings: Flower, place: Path, names: list[str]) -> Flower:
    """Keys, certificates and a node.toml for each client, in a new folder; what the coordinator needs of it."""
    if place.exists() and any(place.iterdir()):
        raise SettingError("--out", str(place), "holds another deployment's keys and ledgers", "give another --out")
    place.mkdir(parents=True, exist_ok=True)
    address = f"127.0.0.1:{free_port()}"
    made = make_certificates(place, ["localhost", "127.0.0.1"])
    (place / "run.toml").write_bytes(tomli_w.dumps(config.to_dict()).encode())
    keys: dict[str, str | tuple[str, ...]] = {name: str(make_node_key(place / f"{name}.key")) for name in names}
    for part, name in enumerate(names):
        (place / f"{name}.toml").write_text(tomli_w.dumps(node_settings(config, settings, address, name, part)))
    return replace(
        settings, address=address, nodes=keys, authority=made.authority, certificate=made.certificate, key=made.key
    )


def node_settings(config: Config, settings: Flower, address: str, name: str, part: int) -> dict[str, object]:
    """A node.toml that allows exactly what the config asks for, and evaluation."""
    policy: dict[str, object] = {"evaluate": True, "evaluations": 10**6, "unsafe_seeded": settings.unsafe_seeded}
    if config.privacy is None:
        policy["without_privacy"] = True
    else:
        events = config.algorithm.events(None, config.privacy)
        policy["epsilon"] = config.privacy.budget(name)
        policy["delta"] = config.privacy.delta
        policy["min_sigma"] = min(event.sigma_effective for event in events)
        policy["max_q"] = config.privacy.q
        policy["accountant"] = config.privacy.ledger_accountant(adaptive=config.algorithm.adaptive)
    policy["algorithms"] = [config.to_dict()["algorithm"]["name"]]
    policy["models"] = [config.model.name]
    if config.features is not None:
        policy["features"] = [config.features.name]
    own = [section for section in (config.model, config.features) if section is not None and ":" in section.name]
    if own:
        policy["arguments"] = {section.name: section.arguments for section in own}
    return {
        "name": name,
        "server": address,
        "folder": name,
        "key": f"{name}.key",
        "certificate": "ca.crt",
        "threads": 1,
        "data": {"config": "run.toml", "part": part},
        "policy": policy,
    }


def start_node(
    config: Path, log_file: Path, *, poll: float = 0.1, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """A node as a process of its own, which ends when this one does."""
    command = [sys.executable, "-m", "fedfdp", "node", "--config", str(config), "--poll", str(poll)]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **(environment or {})}
    with open(log_file, "ab") as output:
        return subprocess.Popen(
            [*command, "--parent", str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=variables,
            start_new_session=True,
        )


def stop(processes: list[subprocess.Popen[bytes]]) -> None:
    """Ends the processes and whatever they started: kindly first."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
