"""Federated averaging: "Communication-Efficient Learning of Deep Networks from Decentralized Data" (McMahan, 2017).

Clients take K steps or E epochs of SGD from the broadcast weights; the server averages what they reach. With privacy
every step is a DPSGD step, which makes it DP-FedAvg with a guarantee for every record.
"""

from dataclasses import dataclass
from typing import ClassVar

from fedfdp.algorithms.base import Algorithm, Broadcast, ClientState, ServerState, Upload


@dataclass(frozen=True, kw_only=True)
class FedAvg(Algorithm[ServerState, Broadcast, Upload, ClientState]):
    """Σ p_i w_i after local SGD: what `Algorithm` does where nothing is overridden."""

    name: ClassVar[str] = "fedavg"
