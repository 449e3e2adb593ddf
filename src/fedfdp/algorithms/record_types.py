"""The four records of a method: the server's state, its message, a client's reply, a client's memory.

Methods derive their own from these. They hold tensors, numbers and strings only, so any of them can be sent and kept.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any

from typing_extensions import TypeVar

from fedfdp.core import ranges
from fedfdp.core.records import Weights


@dataclass(frozen=True)
class Population:
    """What is public about the clients."""

    clients: int  # how many
    records: int  # Σ n_i, of the numbers that they declare
    smallest: int  # min n_i
    classes: int | None  # None for regression


@dataclass(frozen=True)
class ServerState:
    """All the server remembers from round to round."""

    round: int
    weights: Weights
    population: Population


@dataclass(frozen=True)
class Broadcast:
    """What every client of a round receives. Numbers are annotated with their range: a client refuses others."""

    round: Annotated[int, ranges.ROUND]
    weights: Weights


@dataclass(frozen=True)
class Upload:
    """What a client sends: its update w_i − w_t, and the number of records it declares.

    A field that a method adds says in `metadata={"meaning": …}` what it tells of the records: the privacy statement
    quotes it.
    """

    client: str
    records: int
    update: Weights = field(
        metadata={"meaning": "the change of the model's weights, made of clipped and noised gradient sums"}
    )
    discount: float = field(default=1.0, kw_only=True)  # set by the server where the upload comes late

    @property
    def weight(self) -> float:
        """What the upload counts for: p_i up to a common factor."""
        return self.records * self.discount


LOSS_MEANING = {"meaning": "the mean loss of a batch, each loss clamped, noised"}  # of several methods' `loss`


@dataclass(frozen=True)
class ClientState:
    """All a client remembers from round to round, besides its ledger."""


# By default Any: a plain `Algorithm` in an annotation is any method, whatever its records.
StateT = TypeVar("StateT", bound=ServerState, default=Any)
MessageT = TypeVar("MessageT", bound=Broadcast, default=Any)
ReplyT = TypeVar("ReplyT", bound=Upload, default=Any)
MemoryT = TypeVar("MemoryT", bound=ClientState, default=Any)
