"""One training step in seven ways: plain, ours with and without its watch, and four other private ones.

A new way is a class and an entry here. Every private peer computes the same update up to its noise; the tests hold them
to that. All change their weights in place, and none keeps an account.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from fedfdp.bench.peers.base import Peer, Setting, Task
from fedfdp.bench.peers.by_opacus import OpacusGhost, OpacusHooks
from fedfdp.bench.peers.by_torch import Loop, Plain, Vmap
from fedfdp.bench.peers.ours import Ours, Unwatched

__all__ = ["STEP_PEERS", "Entry", "Peer", "Setting", "Task"]


@dataclass(frozen=True)
class Entry:
    """A peer: how it is made, and how it is shown in tables and figures."""

    make: Callable[[Task], Peer]
    title: str
    colour: str
    stores_all: bool = False  # whether it holds every record's gradient at once
    package: str | None = None  # what has to be installed for it

    def missing(self) -> str | None:
        """The package that this peer needs and that cannot be imported."""
        try:
            if self.package is not None:
                import_module(self.package)
        except ImportError:
            return self.package
        return None


STEP_PEERS = {
    "plain": Entry(Plain, "plain", "0.55"),
    "ours": Entry(Ours, "ours", "C2"),
    "unwatched": Entry(Unwatched, "ours, unwatched", "C8"),
    "opacus_hooks": Entry(OpacusHooks, "Opacus hooks", "C0", stores_all=True, package="opacus"),
    "opacus_ghost": Entry(OpacusGhost, "Opacus ghost", "C9", package="opacus"),
    "vmap": Entry(Vmap, "torch.func", "C4", stores_all=True),
    "loop": Entry(Loop, "loop", "C3"),
}
