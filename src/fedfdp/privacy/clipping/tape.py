"""Sees every call of a forward pass, and keeps those in which trained parameters meet the records.

It sees functions, not modules, so tied weights, functional calls and attention's packed projection are seen too. Never
changes the model: the functions get copies of its parameters that share their memory. Values that are made of
parameters alone (a transposed weight, a table of positions looked up) have a graph of their own, which ends where they
meet the records; pulled_back.py follows it back to the parameters.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import Node, get_gradient_edge
from torch.overrides import TorchFunctionMode

from fedfdp.privacy.clipping.draws import SEEDED, Draws
from fedfdp.privacy.clipping.layers.in_steps import IN_STEPS, WITH_WEIGHTS
from fedfdp.privacy.clipping.layers.kept import Kept, Retried, Spread, spread
from fedfdp.privacy.clipping.layers.rule import Meet, Rule
from fedfdp.privacy.clipping.proof.calls import KNOWN, ExpectedCall, Function, UnsupportedError, name_of, tensors_in
from fedfdp.privacy.clipping.proof.functions import PARTLY_WRITTEN, POINTWISE, UNREPEATABLE, drops, kind_of
from fedfdp.privacy.clipping.proof.places import Meeting, Place, Reference, Rows
from fedfdp.privacy.clipping.proof.steps import LOOKED_UP
from fedfdp.privacy.clipping.proof.watcher import OTHER, Watcher

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """A rearrangement of one value that is made of parameters alone."""

    kind: str  # of STEPS
    source: Reference
    shape: tuple[int, ...]  # of the source
    index: Tensor | None  # the rows that were looked up


class Tape(TorchFunctionMode):
    """Hands every call to `watch`, and keeps in `calls` those in which parameters meet the records."""

    def __init__(
        self, rules: Mapping[Any, Rule[Any]], watch: Watcher, draws: Draws | None, *, channels_last: bool
    ) -> None:
        super().__init__()
        self._draws, self._below = draws, torch._C._len_torch_dispatch_stack()
        self._channels_last, self._rules, self._watch = channels_last, rules, watch
        self._view = Tensor.view if channels_last else None
        self._copies: dict[int, Tensor] = {}  # of the trained parameters, by the parameter's id
        self.calls: list[Kept] = []
        self.steps: dict[Reference, Step] = {}
        self.made: dict[Reference, Tensor] = {}  # values of parameters alone that have met the records
        self.starts: dict[int, Reference] = {}  # by id: the tensors at which the graphs of such values begin
        self.nodes: list[Node] = []  # of functions of the rules' own: a model can make others of their class
        self.trials: list[Callable[[], None]] = []  # of inlined functions, to be made before a pass counts as proven
        self._held: list[Tensor] = []  # so that their ids stay theirs
        self.ended: UnsupportedError | None = None  # kept, as a model may catch what is raised within it

    def __torch_function__(
        self, func: Function, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> object:
        kwargs = kwargs or {}
        try:
            if torch._C._len_torch_dispatch_stack() == self._below:
                run = _viewed if func is self._view else func
                if (found := self._watch.simple(func, run, args, kwargs)) is not OTHER:
                    return found
            return self._call(func, args, kwargs)
        except UnsupportedError as error:
            self.ended = self.ended or error
            raise
        except Exception as error:  # whether a call fails may depend on a record: nothing may follow from it
            self.ended = self.ended or UnsupportedError(f"{name_of(func)}: {error}".partition("\n")[0])
            raise

    def _call(self, func: Function, args: Args, kwargs: Kwargs) -> object:
        if type(func) not in KNOWN:  # such as one that says it equals another
            raise UnsupportedError(f"a function of the class {type(func).__name__} is not known")
        kind = kind_of(func)
        if kind.metadata:
            return func(*args, **kwargs)
        if torch._C._len_torch_dispatch_stack() != self._below:
            raise UnsupportedError("a mode below torch's functions changes what they do")
        if kind.draws and self._draws is not None and not self._draws.untouched:
            raise UnsupportedError(SEEDED)
        if kind.apart and (found := self._in_steps(func, kind.name, args, kwargs)) is not NotImplemented:
            return found
        watch = self._watch
        key = watch.key(args, kwargs)
        foreign = kind.foreign and not watch.given
        expected = None if foreign else watch.expect(func, key)
        if watch.used and torch.is_grad_enabled():  # else it is a part that the model itself keeps out of training
            copies = {id(t): self._copy(t, r) for t, _, r in watch.given if id(t) in watch.trained}
            args, kwargs = _replaced(args, copies), _replaced(kwargs, copies)
            watch.given = [(copies.get(id(t), t), version, r) for t, version, r in watch.given]
        if expected is not None and expected.meeting is not None:
            result = self._meet(expected.meeting, func, kind.name, args, kwargs)
        elif expected is not None and expected.step:
            result = self._step(expected, func, args, kwargs)
        elif func is self._view:
            result = _viewed(*args, **kwargs)
        else:
            result = func(*args, **kwargs)
        if kind.draws and self._draws is not None:
            self._draws.drawn()
        if kind.unwritten and isinstance(result, Tensor):
            result.zero_()  # whatever was in that memory before, other records included
        if kind.unchanged:
            watch.unchanged(key, args, result)
        if not foreign:
            watch.note(func, key, result, args, kwargs)
        return result

    def _in_steps(self, func: Function, name: str, args: Args, kwargs: Kwargs) -> object:
        """The result of a function as that of the calls it is made of; NotImplemented: it is called as it is."""
        if func in IN_STEPS:
            with self:
                return IN_STEPS[func](*args, **kwargs)
        if func in WITH_WEIGHTS and torch.is_grad_enabled():
            with self:
                found: object = WITH_WEIGHTS[func](*args, **kwargs)
            if found is not NotImplemented:
                return found
        if name in PARTLY_WRITTEN:
            raise UnsupportedError(f"{name} gives memory with whatever was in it")
        return NotImplemented

    def _copy(self, parameter: Tensor, reference: Reference) -> Tensor:
        """A leaf in the parameter's memory: a backward pass that the model itself makes does not reach the model."""
        if id(parameter) not in self._copies:
            copy = self._copies[id(parameter)] = self._start(parameter, reference)
            self._watch.same(copy, reference)
        return self._copies[id(parameter)]

    def _start(self, value: Tensor, reference: Reference) -> Tensor:
        leaf = value.detach().requires_grad_()
        self.starts[id(leaf)] = reference
        self._held.append(leaf)
        return leaf

    def _step(self, expected: ExpectedCall, func: Function, args: Args, kwargs: Kwargs) -> object:
        """A rearrangement of a parameter. What follows it begins a graph of its own."""
        result = func(*args, **kwargs)
        assert isinstance(result, Tensor)
        (source, found), *_ = [(t, r) for t, _, r in self._watch.given if t.requires_grad]
        if result is source or not result.requires_grad:
            return result
        index = [t for t, _, _ in self._watch.given if not t.is_floating_point()]
        reference, self.made[found] = self._watch.coming, source
        self.steps[reference] = Step(
            expected.step, found, tuple(source.shape), index[0] if expected.step == LOOKED_UP else None
        )
        return self._start(result, reference)

    def _meet(self, meeting: Meeting, func: Function, name: str, args: Args, kwargs: Kwargs) -> object:
        """A call of parameters and records: by a rule, by copies for each record, or to be done again afterwards."""
        given = {id(t): (t, r) for t, _, r in self._watch.given if r in meeting.weights}
        for tensor, reference in given.values():
            self.made[reference] = tensor
        rule = self._rules.get(func)
        if rule is not None:
            try:
                return self._by_rule(rule, meeting, func, given, args, kwargs)
            except UnsupportedError:
                pass  # not such a call: there are other ways
        found = self._by_copies(meeting, func, name, given, args, kwargs)
        return found if found is not None else self._again(meeting, func, name, given, args, kwargs)

    def _by_rule(
        self,
        rule: Rule[Any],
        meeting: Meeting,
        func: Any,
        given: dict[int, tuple[Tensor, Reference]],
        args: Args,
        kwargs: Kwargs,
    ) -> object:
        def known(tensor: Tensor | None) -> Reference | None:
            return given[id(tensor)][1] if id(tensor) in given else None

        def place(tensor: Tensor) -> Place:
            return meeting.places.get(self._watch.reference(tensor))

        def made(result: Tensor) -> None:
            if result.grad_fn is not None:
                self.nodes.append(result.grad_fn)

        output, calls = rule.take(func, args, kwargs, Meet(known, place, meeting.weights, self._channels_last, made))
        self.calls += calls
        return output

    def _by_copies(
        self,
        meeting: Meeting,
        func: Function,
        name: str,
        given: dict[int, tuple[Tensor, Reference]],
        args: Args,
        kwargs: Kwargs,
    ) -> object | None:
        """The call with a copy of the parameter for each record; None where it is not broadcast over them."""
        place = meeting.results[0] if meeting.results else None
        if not isinstance(place, Rows) or len(meeting.weights) != len(given):
            return None
        if name in POINTWISE:
            like = _common_shape(tensors_in((args, kwargs)))
        elif name == "scaled_dot_product_attention" and set(given) == {id(_mask(args, kwargs))}:
            query = args[0] if args else kwargs["query"]
            like = (*query.shape[:-1], (args[1] if len(args) > 1 else kwargs["key"]).shape[-2])
            if place.dim >= len(like) - 2:
                return None
        elif name in ("expand", "broadcast_to"):
            like = _expanded(func, args, kwargs)
        else:
            return None
        copies = {number: spread(tensor, like, place) for number, (tensor, _) in given.items()}
        if any(copy is None for copy in copies.values()):
            return None
        for number, (tensor, reference) in given.items():
            copy = copies[number]
            assert copy is not None
            self.calls.append(Spread(reference, tuple(tensor.shape), place, get_gradient_edge(copy), copy.numel()))
        return func(*_replaced(args, copies), **_replaced(kwargs, copies))

    def _again(
        self,
        meeting: Meeting,
        func: Function,
        name: str,
        given: dict[int, tuple[Tensor, Reference]],
        args: Args,
        kwargs: Kwargs,
    ) -> object:
        """The call, kept so that it can be differentiated record by record."""
        weights = sorted({str(r.name): r for _, r in given.values()}.items())
        if name in UNREPEATABLE or drops(name, args, kwargs):
            raise UnsupportedError(f"{weights[0][1].name} is used by {name}")
        leaves = {number: tensor.detach().requires_grad_() for number, (tensor, _) in given.items()}
        result = func(*_replaced(args, leaves), **_replaced(kwargs, leaves))
        outputs = [t for t in tensors_in(result) if t.is_floating_point()]
        places = [p for p in meeting.results if p is not None]
        if len(outputs) != 1 or len(meeting.results) != 1 or not all(isinstance(p, Rows) for p in places):
            raise UnsupportedError(f"{weights[0][1].name} is used by {name}")
        if not all(output.requires_grad for output in outputs) or any(out is t for out in outputs for t in args):
            raise UnsupportedError(f"{weights[0][1].name} is used by {name}")
        tensors = {r: t.detach() for t, _, r in self._watch.given}
        self.calls.append(
            Retried(
                func=func,
                args=args,
                kwargs=kwargs,
                pattern=meeting.pattern,
                given=tensors,
                places={r: p for r, p in meeting.places.items() if isinstance(p, Rows)},
                weights=[r for _, r in weights],
                results=tuple(p for p in meeting.results if isinstance(p, Rows)),
                edges=tuple(get_gradient_edge(output) for output in outputs),
                versions=tuple(t._version for t in tensors.values()),
            )
        )
        return result


def _replaced(value: Any, by: Mapping[int, Any]) -> Any:
    """The same arguments with other tensors in the place of some."""
    if isinstance(value, Tensor):
        return by.get(id(value), value)
    if type(value) in (tuple, list):
        return type(value)([_replaced(part, by) for part in value])
    if type(value) is dict:
        return {name: _replaced(part, by) for name, part in value.items()}
    return value


def _common_shape(tensors: Iterable[Tensor]) -> tuple[int, ...]:
    return tuple(torch.broadcast_shapes(*[tensor.shape for tensor in tensors]))  # type: ignore[no-untyped-call]


def _expanded(func: Function, args: Args, kwargs: Kwargs) -> tuple[int, ...]:
    with torch.no_grad():
        return tuple(func(*args, **kwargs).shape)  # type: ignore[attr-defined]


def _mask(args: Args, kwargs: Kwargs) -> object:
    return args[3] if len(args) > 3 else kwargs.get("attn_mask")


def _viewed(tensor: Tensor, *shape: Any, **kwargs: Any) -> Tensor:
    """A view, or a copy where the model expects an order of numbers that its images do not have here."""
    try:
        return tensor.view(*shape, **kwargs)
    except RuntimeError:
        return tensor.contiguous().view(*shape, **kwargs)
