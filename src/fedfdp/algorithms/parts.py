"""A method over models that differ: parts that a client keeps to itself, and clients whose models are narrower.

**Own parts** never leave the client: a head for its own classes, an input layer for its own columns. Beware: a head
that is trained without noise depends on all records of the client, so the clipped gradient that one record gives to the
body would depend on the others, and the bound on what one record can change would be lost. Here head and body are one
gradient: clipped together, noised together, stepped together, in one event at the same price.

**Nested widths** (HeteroFL, Diao et al., 2021): a narrower model has the same parameters, each the leading slice of the
full one's. A client gets its slices, trains and uploads them; the server averages every number over those that hold it.
"""

import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Generic, TypeVar

from torch import Tensor

from fedfdp.algorithms.base import Algorithm
from fedfdp.algorithms.by_loss import ByLoss
from fedfdp.algorithms.local_round import Client, Question
from fedfdp.algorithms.record_types import ClientState, Population
from fedfdp.core import weights as w
from fedfdp.core.errors import SettingError, nearest
from fedfdp.core.records import WEIGHTS, Weights
from fedfdp.privacy.dpsgd import DPSGD

M = TypeVar("M")


@dataclass(frozen=True)
class Kept(ClientState, Generic[M]):
    """What a client remembers: the method's memory, and its own parts; empty before its first round."""

    memory: M
    own: Weights = field(default_factory=Weights)


class Parts(Algorithm):
    """What differs from a method where models differ. `in_parts` puts it in front of the method's own class."""

    own: ClassVar[
        tuple[str, ...]
    ] = ()  # names of parameters or layers that never leave a client; * stands for anything
    method: ClassVar[type[Algorithm]] = Algorithm  # the class without this

    # Which part of the model is whose --------------------------------------------------------------------------------

    def is_own(self, name: str) -> bool:
        """Whether this parameter never leaves a client."""
        return _named(name, self.own)

    def shared(self, weights: Mapping[str, Tensor]) -> Weights:
        """What leaves a client of such weights."""
        return Weights.of({name: tensor for name, tensor in weights.items() if not self.is_own(name)})

    def check(self, weights: Weights) -> None:
        """Raises where a pattern names nothing, or nothing is left to share."""
        layers = dict.fromkeys(name.rpartition(".")[0] or name for name in weights)
        for pattern in self.own:
            if not any(_named(name, (pattern,)) for name in weights):
                raise SettingError("model.own", pattern, f"matches no parameter; {nearest(pattern, layers)}")
        if not self.shared(weights):
            fix = "leave a part out, or take algorithm.name = local"
            raise SettingError("model.own", list(self.own), "nothing is left to share", fix)

    # The client's side -----------------------------------------------------------------------------------------------

    def memory(self) -> Any:
        plain = self.method.memory is Algorithm.memory
        return Kept(self.method.Memory() if plain else super().memory())

    def question(self, memory: Any) -> Question | None:
        return super().question(memory.memory if isinstance(memory, Kept) else memory)

    def start(self, broadcast: Any, memory: Any) -> Weights:
        """Each client's model is put together by itself, so no two start from one object."""
        return Weights() if isinstance(memory, Kept) else super().start(broadcast, memory)

    def local(self, broadcast: Any, memory: Any, client: Client) -> tuple[Any, Any]:
        """The method's round with the client's whole model; its own part of the update stays here."""
        whole = w.assembled(client.initial, memory.own, broadcast.weights)
        upload, after = super().local(replace(broadcast, weights=whole), memory.memory, client)
        reached = w.add(whole, upload.update)
        own = Weights.of({name: tensor for name, tensor in reached.items() if self.is_own(name)})
        return replace(upload, update=self.shared(upload.update)), Kept(after, own)

    def holds(self, weights: Weights, memory: Any) -> Weights:
        """What is shared, and the client's own parts."""
        return Weights.of({**weights, **memory.own})

    # The server's side -----------------------------------------------------------------------------------------------

    def init(self, weights: Weights, population: Population, privacy: DPSGD | None) -> Any:
        self.check(weights)
        return super().init(self.shared(weights), population, privacy)


def in_parts(method: Algorithm, own: Sequence[str]) -> Parts:
    """The same method where these parts of the model never leave a client, and clients' models may be narrower."""
    kind, fix = type(method), "take fedavg, fedprox or a fair rule"
    for record in (kind.Message, kind.Reply, kind.Memory):
        hints = typing.get_type_hints(record)
        if odd := [name for name, hint in hints.items() if hint in WEIGHTS and name not in ("weights", "update")]:
            held = f"own parts and widths are not for {kind.name}, which sends or keeps more than the model ({odd[0]})"
            raise SettingError("algorithm.name", kind.name, held, fix)
    if kind.personal or (kind.keeps_updates and not issubclass(kind, ByLoss)) or kind.name == "fedfv":
        what = "keeps whole models at the clients" if kind.personal else "compares whole updates"
        raise SettingError("algorithm.name", kind.name, f"own parts and widths are not for it: it {what}", fix)
    facts = {"own": tuple(own), "method": kind, "Memory": Kept[kind.Memory], "personal": True}  # type: ignore[name-defined]
    made = type(kind.__name__, (Parts, kind), {**facts, "__module__": __name__, "__doc__": kind.__doc__})
    return made(**{f.name: getattr(method, f.name) for f in fields(method)})  # type: ignore[no-any-return]


def _named(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*") for pattern in patterns)


def check_nested(name: str, narrow: Mapping[str, Tensor], full: Mapping[str, Tensor]) -> None:
    """Raises unless every shared parameter of the client's model is a leading slice of the server's."""
    for part, tensor in narrow.items():
        if part not in full:
            allowed = f"{name}'s model has a parameter {part} that the full model has not"
            raise SettingError("model.own", part, allowed, "name it in model.own, or build both by one function")
        mine, whole = tuple(tensor.shape), tuple(full[part].shape)
        if len(mine) != len(whole) or any(m > f for m, f in zip(mine, whole, strict=True)):
            allowed = f"{part} of {name}'s model is {mine}, which is no leading part of {whole}"
            raise SettingError("model.widths", name, allowed, "name it in model.own, or make it narrower")
    if missing := sorted(full.keys() - narrow.keys()):
        allowed = f"{name}'s model lacks the parameter {missing[0]}, which is shared"
        raise SettingError("model.own", missing[0], allowed, "name it in model.own, or build both by one function")
