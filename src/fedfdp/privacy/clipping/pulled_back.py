"""From the gradients at the calls to contributions of the parameters, record by record.

A call may have used a value that was made of parameters alone. Its gradient is followed back to them: through a
rearrangement as it is, through anything else by autograd for all records at once.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor
from torch.autograd.graph import Node

from fedfdp.privacy.clipping.contributions import Contribution, Stored
from fedfdp.privacy.clipping.inlined import has_own_backward
from fedfdp.privacy.clipping.products import Factors, joined
from fedfdp.privacy.clipping.proof.calls import UnsupportedError
from fedfdp.privacy.clipping.proof.places import Reference
from fedfdp.privacy.clipping.proof.steps import LOOKED_UP, SAME
from fedfdp.privacy.clipping.tape import Step, Tape

Part = Tensor | Factors  # (B, *shape), or the factors of such a matrix
Parts = dict[Reference, list[Part]]


def contributions_of(tape: Tape, grads: Sequence[Sequence[Tensor] | None], batch: int) -> list[Contribution]:
    """Every parameter's contribution. One that is used in several places has its gradients added before its norm."""
    live = [(call, given) for call, given in zip(tape.calls, grads, strict=True) if given is not None]
    uses = Counter(reference for call, _ in live for reference in call.weights)
    behind = _behind(uses, tape)
    found: list[Contribution] = []
    parts: Parts = defaultdict(list)
    for call, given in live:
        alone = all(r.kind == "own" and uses[r] == 1 and r not in behind for r in call.weights)
        if alone:
            found += call.contributions(given, batch)
            continue
        for reference, part in call.factors(given, batch).items():
            parts[reference].append(part)
    return found + _at_parameters(parts, tape, batch)


def _behind(references: Iterable[Reference], tape: Tape) -> set[Reference]:
    """The values that others of these were made of: their gradients come from more than one place."""
    found: set[Reference] = set()
    ahead = list(references)
    while ahead:
        new = _sources(ahead.pop(), tape) - found
        found |= new
        ahead += new
    return found


def _sources(reference: Reference, tape: Tape) -> set[Reference]:
    """The values at which the graph of this one begins; none for a parameter itself."""
    if reference in tape.steps:
        return {tape.steps[reference].source}
    return {start for _, start in _starts(tape.made[reference], tape)} if reference.kind != "own" else set()


def _starts(value: Tensor, tape: Tape) -> list[tuple[Tensor, Reference]]:
    """The leaves that a value was made of, and which values they are."""
    if id(value) in tape.starts:
        return [(value, tape.starts[id(value)])]
    found: dict[int, tuple[Tensor, Reference]] = {}
    seen: set[Node] = set()
    ahead: list[Node | None] = [value.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if has_own_backward(node):
            raise UnsupportedError(f"{type(node).__name__} has a backward pass of its own, which is not watched")
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) in tape.starts:
            found[id(leaf)] = (leaf, tape.starts[id(leaf)])
        ahead.extend([function for function, _ in node.next_functions])
    if not found:
        raise UnsupportedError("a value made of parameters alone cannot be followed back to them")
    return list(found.values())


def _at_parameters(parts: Parts, tape: Tape, batch: int) -> list[Contribution]:
    """Follows what was found for values made of parameters back to these, the last that was made first."""
    done: list[Contribution] = []
    while values := [reference for reference in parts if reference.kind != "own"]:
        reference = max(values, key=lambda r: int(r.name))
        given = parts.pop(reference)
        step = tape.steps.get(reference)
        if step is not None:
            parts[step.source] += [_before(part, step, batch) for part in given]
            continue
        value = tape.made[reference]
        rows = added(given, batch, tuple(value.shape))
        leaves, names = zip(*_starts(value, tape), strict=True)
        with torch.enable_grad():
            back = torch.autograd.grad(value, leaves, rows, is_grads_batched=True, retain_graph=True)
        for name, pulled in zip(names, back, strict=True):
            parts[name].append(pulled)
    for reference, given in parts.items():
        done.append(_whole(str(reference.name), given, batch))
    return done


def _before(part: Part, step: Step, batch: int) -> Part:
    """What a gradient behind a rearrangement is before it."""
    if step.kind == LOOKED_UP:
        assert step.index is not None
        height, width = step.shape
        rows = part if isinstance(part, Tensor) else part.dense()
        index = (step.index.reshape(1, -1) % height).expand(batch, -1)
        return Factors(index, rows.reshape(batch, -1, width), height, width)
    if step.kind == SAME:
        return part.reshape(batch, *step.shape) if isinstance(part, Tensor) else part
    return part.mT if isinstance(part, Tensor) else part.swapped()


def added(parts: Sequence[Part], batch: int, shape: tuple[int, ...]) -> Tensor:
    """The sum of gradients, (B, *shape)."""
    dense = [part if isinstance(part, Tensor) else part.dense() for part in parts]
    total = dense[0]
    for part in dense[1:]:
        total = total.reshape(batch, *shape) + part.reshape(batch, *shape)
    return total.reshape(batch, *shape)


def _whole(name: str, parts: list[Part], batch: int) -> Contribution:
    """The contribution of a parameter from the parts of its gradient."""
    factors = [part for part in parts if isinstance(part, Factors)]
    if len(factors) == len(parts) and len({(part.height, part.width) for part in factors}) == 1:
        return joined(name, factors)
    shape = next((tuple(part.shape[1:]) for part in parts if isinstance(part, Tensor)), (-1,))
    return Stored(name, added(parts, batch, shape))
