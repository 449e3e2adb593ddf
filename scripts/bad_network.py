"""A bad network on one machine: network namespaces, and between them packets that come late, get lost, or stop.

    python scripts/bad_network.py --latency 0.2 --loss 0.05 -- COMMAND   (root, Linux)

Linux's own emulator (`tc netem`) is a kernel module that many machines lack, so packets go through this process: the
coordinator and every node have a namespace with a TUN device, and what one sends is read here, and put into the
other's after a delay, or never. Losses are real: TCP has to send again.
"""

import argparse
import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field

COORDINATOR = "10.77.0.1"
SERVER = "fedfdp-c"  # the coordinator's namespace
_TUNSETIFF, _TUN, _NO_PI = 0x400454CA, 0x0001, 0x1000


def address(node: int) -> str:
    """Where the node of this number is: from 0."""
    return f"10.77.1.{node + 1}"


def namespace(node: int) -> str:
    return f"fedfdp-{node}"


@dataclass
class Network:
    """Packets between the namespaces. `cut` holds the addresses of nodes that nothing reaches and nothing leaves."""

    latency: float = 0.0  # seconds, one way
    loss: float = 0.0  # the part of packets that is lost, one way
    seed: int = 0
    cut: set[str] = field(default_factory=set)
    passed: int = 0
    lost: int = 0
    broken: str = ""  # why no packet passes any more
    _ends: dict[str, int] = field(default_factory=dict)  # by address
    _places: list[str] = field(default_factory=list)
    _ended: threading.Event = field(default_factory=threading.Event)

    def start(self, nodes: int) -> None:
        """Makes the namespaces; packets pass until `stop`."""
        places = {SERVER: COORDINATOR, **{namespace(node): address(node) for node in range(nodes)}}
        self._places = list(places)
        self._remove()
        for name, at in places.items():
            _ip("netns", "add", name)
            self._ends[at] = _tun(name)
            _ip("-n", name, "address", "add", f"{at}/16", "dev", name)
            for device in ("lo", name):
                _ip("-n", name, "link", "set", device, "up")
        threading.Thread(target=self._forward, name="network", daemon=True).start()

    def stop(self) -> None:
        self._ended.set()
        time.sleep(0.1)
        for end in self._ends.values():
            os.close(end)
        self._remove()

    def _remove(self) -> None:
        for name in self._places:
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL, check=False)

    def _forward(self) -> None:
        chance, waiting, number = random.Random(self.seed), list[tuple[float, int, bytes]](), 0
        while not self._ended.is_set():
            now = time.monotonic()
            while waiting and waiting[0][0] <= now:
                self._deliver(heapq.heappop(waiting)[2])
            pause = min(max(waiting[0][0] - now, 0.0), 0.05) if waiting else 0.05
            ready, _, _ = select.select(list(self._ends.values()), [], [], pause)
            for end in ready:
                try:
                    packet = os.read(end, 2048)
                except OSError as error:  # its namespace is gone
                    self.broken = str(error)
                    return
                if chance.random() < self.loss:
                    self.lost += 1
                    continue
                number += 1
                heapq.heappush(waiting, (time.monotonic() + self.latency, number, packet))

    def _deliver(self, packet: bytes) -> None:
        if packet[0] >> 4 != 4:
            return  # the kernel's own words on IPv6
        sender, to = (".".join(map(str, packet[at : at + 4])) for at in (12, 16))
        if sender in self.cut or to in self.cut:
            self.lost += 1
        elif to in self._ends:
            with suppress(OSError):  # a device that is down
                os.write(self._ends[to], packet)
                self.passed += 1


def inside(name: str, command: list[str]) -> list[str]:
    """The command, run in a namespace: SERVER, or that of a node."""
    return ["ip", "netns", "exec", name, *command]


def possible() -> bool:
    """Whether this machine allows it."""
    try:
        made = subprocess.run(["ip", "netns", "add", "fedfdp-try"], capture_output=True, check=False).returncode == 0
        subprocess.run(["ip", "netns", "delete", "fedfdp-try"], capture_output=True, check=False)
    except FileNotFoundError:
        return False
    return made and os.access("/dev/net/tun", os.R_OK | os.W_OK)


def _tun(name: str) -> int:
    """A TUN device of the namespace's name in it; packets to and from it are read and written here."""
    end = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    fcntl.ioctl(end, _TUNSETIFF, struct.pack("16sH22s", name.encode(), _TUN | _NO_PI, b""))
    _ip("link", "set", name, "netns", name)
    return end


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--latency", type=float, default=0.2, help="seconds, one way")
    options.add_argument("--loss", type=float, default=0.05, help="of packets, one way")
    options.add_argument("command", nargs="+", help="run at 10.77.1.1, with the coordinator's namespace at 10.77.0.1")
    given = options.parse_args()
    if not possible():
        sys.exit("network namespaces and /dev/net/tun are needed: Linux, as root")
    network = Network(given.latency, given.loss)
    network.start(nodes=1)
    try:
        sys.exit(subprocess.run(inside(namespace(0), given.command), check=False).returncode)
    finally:
        network.stop()


if __name__ == "__main__":
    main()
