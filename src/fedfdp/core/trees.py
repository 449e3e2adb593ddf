"""Records with several inputs: a tuple or a dict of tensors with a common first dimension.

A plain tensor stays what it is. A model gets a tuple as its arguments one after the other, a dict by their names.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from fedfdp.core.errors import DataError


class Tree:
    """Several inputs of the same records; indexing takes the same records of each. Nothing is copied before that."""

    __slots__ = ("names", "parts")

    def __init__(self, parts: Sequence[Tensor], names: Sequence[str] | None = None) -> None:
        """`names` are those of a dict's entries; None: a tuple."""
        self.parts = tuple(parts)
        self.names = None if names is None else tuple(names)

    def __len__(self) -> int:
        return self.parts[0].shape[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """The common dimension alone: (records,)."""
        return (self.parts[0].shape[0],)

    @property
    def device(self) -> torch.device:
        return self.parts[0].device

    def each(self, change: Callable[[Tensor], Tensor]) -> "Tree":
        """The same with every input changed."""
        return Tree([change(part) for part in self.parts], self.names)

    def __getitem__(self, index: object) -> "Tree":
        return self.each(lambda part: part[index])  # type: ignore[index]

    def to(self, device: torch.device) -> "Tree":
        return self.each(lambda part: part.to(device))

    def detach(self) -> "Tree":
        return self.each(Tensor.detach)

    def clone(self) -> "Tree":
        return self.each(Tensor.clone)


Inputs: TypeAlias = Tensor | Tree


class Leaf(NamedTuple):
    """What is public about one input: its name, the shape for one record, and the kind of its numbers."""

    name: str  # "": the only input; "0", "1", …: of a tuple; else the key in a dict
    shape: tuple[int, ...]
    kind: str  # float32, int64 (token numbers) or bool


Form: TypeAlias = tuple[Leaf, ...]  # of a record: one leaf for a plain tensor


def parts_of(x: Inputs) -> tuple[Tensor, ...]:
    """The tensors of the records, in order."""
    return x.parts if isinstance(x, Tree) else (x,)


def each(x: Inputs, change: Callable[[Tensor], Tensor]) -> Inputs:
    """The same with every input changed."""
    return x.each(change) if isinstance(x, Tree) else change(x)


def like(x: Inputs, parts: Sequence[Tensor]) -> Inputs:
    """Other tensors in the same arrangement."""
    return Tree(parts, x.names) if isinstance(x, Tree) else parts[0]


def joined(pieces: Sequence[Inputs]) -> Inputs:
    """Records one after the other."""
    return like(pieces[0], [torch.cat(parts) for parts in zip(*map(parts_of, pieces), strict=True)])


def apart(x: Inputs) -> Inputs:
    """Inputs that share no memory: what is written to one must not reach another, in whatever row that is."""
    if isinstance(x, Tensor):
        return x
    seen: set[int] = set()
    parts = []
    for part in x.parts:
        place = part.untyped_storage().data_ptr()
        parts.append(part.clone() if place in seen else part)
        seen.add(place)
    return Tree(parts, x.names)


def arguments_of(x: Inputs) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """What a model is called with."""
    if isinstance(x, Tree) and x.names is not None:
        return (), dict(zip(x.names, x.parts, strict=True))
    return parts_of(x), {}


def call(model: Callable[..., Any], x: Inputs) -> Tensor:
    """What the model gives for these records."""
    if isinstance(x, Tensor):
        plain: Tensor = model(x)
        return plain
    given, named = arguments_of(x)
    found: Tensor = model(*given, **named)
    return found


def as_tree(given: object) -> object:
    """A tuple or a dict of arrays as a list of (name, array); anything else, a tuple of plain numbers too, as it is."""
    if isinstance(given, Mapping):
        return [(str(name), value) for name, value in given.items()]
    if isinstance(given, tuple) and any(getattr(value, "ndim", 0) for value in given):
        return [(str(number), value) for number, value in enumerate(given)]
    return tuple(given) if isinstance(given, list) else given  # a list is what this gives for several


def grown(parts: Iterable[tuple[str, Tensor]]) -> Tree:
    """The tree of inputs with these names, or in the order of these numbers; a DataError unless they are as long."""
    named = list(parts)
    if numbered := all(name.isdecimal() for name, _ in named):
        named.sort(key=lambda part: int(part[0]))
    names, tensors = [name for name, _ in named], [tensor for _, tensor in named]
    counts = {tensor.shape[0] for tensor in tensors}
    if len(counts) > 1:
        each = ", ".join(f"{tensor.shape[0]} in {name!r}" for name, tensor in named)
        raise DataError(f"inputs of different length: {each}; every record needs all of them")
    return Tree(tensors, None if numbered else names)


def form_of(x: Inputs) -> Form:
    """What is public about records like these."""
    names: Sequence[str] = [""]
    if isinstance(x, Tree):
        names = [str(i) for i in range(len(x.parts))] if x.names is None else x.names
    kinds = [str(part.dtype).removeprefix("torch.") for part in parts_of(x)]
    kinds = ["float32" if kind == "float16" else kind for kind in kinds]  # features, which models get as float32
    shapes = [tuple(part.shape[1:]) for part in parts_of(x)]
    return tuple(Leaf(*leaf) for leaf in zip(names, shapes, kinds, strict=True))


def made(form: Form, count: int, make: Callable[[tuple[int, ...], torch.dtype], Tensor]) -> Inputs:
    """Records of this form whose inputs `make` makes, by shape and dtype."""
    parts = [(leaf.name, make((count, *leaf.shape), getattr(torch, leaf.kind))) for leaf in form]
    return parts[0][1] if is_plain(form) else grown(parts)


def blank(form: Form, count: int = 2, device: torch.device | None = None) -> Inputs:
    """Records of zeros; a mask has ones, since one that hides everything leaves nothing to compute."""

    def zeros(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=device)

    found = made(form, count, zeros)
    masks = [leaf.kind == "bool" or "mask" in leaf.name for leaf in form]
    both = zip(parts_of(found), masks, strict=True)
    return like(found, [torch.ones_like(part) if mask else part for part, mask in both])


def random(form: Form, count: int, chance: torch.Generator) -> Inputs:
    """Made-up records: normal numbers, tokens 0 and 1, masks of ones."""

    def drawn(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        if dtype.is_floating_point:
            return torch.randn(shape, generator=chance).to(dtype)
        return torch.randint(0, 2, shape, generator=chance).to(dtype)

    return made(form, count, drawn)


def is_plain(form: Form) -> bool:
    """Whether a record is one tensor."""
    return len(form) == 1 and form[0].name == ""
