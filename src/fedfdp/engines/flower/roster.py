"""Who takes part across machines: the nodes that the coordinator knows, and what each has said of itself.

Where keys are registered, a node is its key; what it calls itself must agree with that.
"""

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fedfdp.core import records
from fedfdp.core.errors import DataError, RunError
from fedfdp.core.trees import Form, Leaf
from fedfdp.engines.flower.checks import HEADROOM
from fedfdp.engines.flower.exchange import Exchange
from fedfdp.engines.flower.messages import Answer, Hello, Question
from fedfdp.models.tasks import TASKS, Task, find_task, task_for
from fedfdp.privacy.accounting import Event

log = logging.getLogger("fedfdp.server")

HELLO_SECONDS = 60.0


def _kind(hello: Hello) -> tuple[object, ...]:
    """What all nodes must have in common, unless parts of the model are their own."""
    return hello.input_shape, hello.classes, hello.outputs, hello.tokens, hello.inputs, hello.task


def form_in(hello: Hello) -> Form:
    """The inputs of a node's records; a DataError where they cannot be read."""
    if not hello.inputs:
        return (Leaf("", hello.input_shape, "int64" if hello.tokens else "float32"),)
    try:
        form = tuple(
            Leaf(str(name), tuple(map(int, shape)), str(kind)) for name, shape, kind in json.loads(hello.inputs)
        )
    except (ValueError, TypeError, RecursionError):
        raise DataError(f"it says of its inputs {hello.inputs!r:.60}") from None
    kinds, names = {leaf.kind for leaf in form}, [leaf.name for leaf in form]
    named = all(name.isidentifier() for name in names) or names == [str(i) for i in range(len(names))]
    if not form or not named or len(set(names)) < len(names) or not kinds <= {"float32", "int64", "bool"}:
        raise DataError(f"it says of its inputs {hello.inputs!r:.60}")
    return form


@dataclass
class Roster:
    """The members of a run across machines: its nodes, in the order in which their uploads are summed."""

    names: tuple[str, ...]
    exchange: Exchange
    hellos: dict[str, Hello] = field(default_factory=dict)
    name: str = "federation"
    refused: dict[str, str] = field(default_factory=dict)  # why a node that came was not let in
    spent: dict[str, str] = field(default_factory=dict)  # what nodes said of their ledgers, until it is taken out
    again: set[str] = field(default_factory=set)  # who is asked nothing before it has said hello again
    mixed: bool = False  # whether nodes may have records of other shapes and classes: with own parts of the model

    @property
    def widths(self) -> dict[str, float]:
        """The nodes that cannot hold the full model, and what part of its width they can."""
        return {name: hello.width for name, hello in self.hellos.items() if hello.width != 1}

    @property
    def like(self) -> Hello:
        """What is common to all nodes: the shape of a record, the classes, whom the guarantee is for."""
        return next(iter(self.hellos.values()))

    @property
    def sizes(self) -> list[int]:
        return [self.hellos[name].records if name in self.hellos else 0 for name in self.names]

    @property
    def unit(self) -> str:
        return self.like.unit

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.like.input_shape

    @property
    def tokens(self) -> bool:
        return self.like.tokens

    @property
    def form(self) -> Form:
        return form_in(self.like)

    @property
    def task(self) -> Task:
        return find_task(self.like.task) if self.like.task else task_for(self.like.classes)

    @property
    def classes(self) -> int | None:
        return self.like.classes

    @property
    def outputs(self) -> int:
        return self.like.outputs

    @property
    def before(self) -> tuple[Event, ...]:
        """Nothing: no node estimates a range."""
        return ()

    def holdings(self) -> dict[str, list[str] | list[int] | None]:
        """What nodes declared; test records and classes stay with them."""
        return {"names": list(self.names), "train": self.sizes, "test": None, "classes": None}

    def refresh(self, *, all_within: float | None = None) -> None:
        """Asks the nodes that are there, and have not said hello yet, what they have; or all, within seconds.

        Who was away may have been started anew with other records: it says hello again.
        """
        ids, here = self.exchange.ids, self.exchange.present()
        expected = {**self.exchange.owners, **{node: name for name, node in ids.items()}}
        self.again |= {name for name in self.hellos if ids.get(name) not in here}
        known = {name for name in self.hellos if ids.get(name) in here or name not in self.exchange.owners.values()}
        known -= self.again
        # Also one that comes with its other key.
        fresh = {node for node in here if all_within is not None or expected.get(node) not in known}
        questions = {node: Question("hello", "", "") for node in fresh}
        if not questions:
            return
        for node, answer in self.exchange.ask(questions, deadline=all_within or HELLO_SECONDS, limit=HEADROOM):
            self._welcome(node, expected.get(node), answer)

    def _welcome(self, node: int, expected: str | None, answer: Answer | DataError) -> None:
        try:
            if isinstance(answer, DataError):
                raise answer
            if answer.status != "ok":
                raise DataError(answer.reason)
            hello = records.from_bytes(Hello, answer.record)
            if hello.name not in self.names or (expected is not None and hello.name != expected):
                raise DataError(f"it calls itself {hello.name!r:.60}")
            if hello.records < 1:
                raise DataError("it has no records")
            if not 0 < hello.width <= 1:
                raise DataError(f"it says that it can hold {hello.width} of the model's width")
            form_in(hello)
            if hello.task not in ("", *TASKS):
                raise DataError(f"its task is {hello.task!r:.60}; across machines: {', '.join(TASKS)}")
            if self.hellos and hello.unit != self.unit:  # one statement is for all nodes, whatever their models are
                raise DataError(f"it protects each {hello.unit!r:.40}, others each {self.unit!r:.40}")
            if self.hellos and not self.mixed and _kind(hello) != _kind(self.like):
                raise DataError(
                    f"its records are {hello.input_shape} with {hello.classes} classes, "
                    f"others' {self.like.input_shape} with {self.like.classes}"
                )
        except DataError as error:
            if expected is None:
                log.warning("node %s is not let in: %s", node, error)
            else:
                self.turn_away(expected, str(error))
            return
        before = self.hellos.get(hello.name)
        self.exchange.ids[hello.name] = node
        self.hellos[hello.name], self.spent[hello.name] = hello, answer.spent
        self.again.discard(hello.name)
        if before is None:
            log.info("%s is here with %s records", hello.name, f"{hello.records:,}")
        elif before.records != hello.records:
            log.warning("%s has %s records now, %s before", hello.name, f"{hello.records:,}", f"{before.records:,}")

    def turn_away(self, name: str, why: str) -> None:
        """Lets the node take part in nothing until it says hello again, and something else; says it once."""
        self.again.add(name)
        if self.refused.get(name) != (said := f"it was not let in: {why}"):
            log.warning("%s is not let in: %s", name, why)
        self.refused[name] = said

    def ready(self, names: Sequence[str]) -> list[str]:
        """Those of these nodes that are there, and were let in."""
        there = self.exchange.names_present(names)
        return [name for name in there if name in self.hellos and name not in self.again]

    def gather(self, enough: int, wait: float, *, say: Callable[[str], None]) -> None:
        """Waits for every node; when the time is over, goes on with those that came if they are enough."""
        end, told = time.monotonic() + wait, -1
        while len(self.hellos) < len(self.names):
            self.refresh()
            if len(self.hellos) != told:
                told = len(self.hellos)
                say(f"{told} of {len(self.names)} nodes are here")
            if time.monotonic() > end:
                break
            if told < len(self.names):
                time.sleep(0.1)
        if len(self.hellos) < enough:
            missing = ", ".join(name for name in self.names if name not in self.hellos)
            raise RunError(
                f"flower.wait = {wait:g}: {len(self.hellos)} nodes came, {enough} are needed (missing: {missing}); "
                "start them, or lower flower.quorum"
            )
