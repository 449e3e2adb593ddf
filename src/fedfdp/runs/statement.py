"""What a run guarantees, to whom, under which assumptions, and what it does not cover: for those who decide by it.

Every number comes from the ledgers. Nothing is claimed that the ledgers do not show.
"""

import datetime
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version

from fedfdp.algorithms.base import Algorithm
from fedfdp.privacy.accounting import Event, caveat, delta_warning, find
from fedfdp.privacy.accounting.events import Adjacency, repeat
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.privacy.unit import Unit
from fedfdp.privacy.unnoised import warnings_of
from fedfdp.training.protocols import Accounts, EngineFacts

MOST_INDENTED = 1000  # clients of a statement that is laid out for people too
RANGES = "once, before training: counts of the columns' values on a public grid, noised, to estimate ranges from"


@dataclass(frozen=True)
class Account:
    """What one client has spent."""

    client: str
    records: int
    epsilon: float
    epsilon_replace_one: float | None  # None where the accountant has no such number
    budget: float | None


@dataclass(frozen=True)
class Statement:
    """The guarantee of a run, complete: as a record for machines and as a page for people."""

    algorithm: str
    privacy: DPSGD
    rounds: int
    accounts: tuple[Account, ...]
    released: Mapping[str, str]  # what leaves a client, and what it means
    beside: tuple[float, ...]  # noise multipliers of what is released beside the gradient, from the same batch
    repeatable: bool
    unit: str = "record"  # or the column that tells persons apart
    evaluated: Mapping[str, int] = field(default_factory=dict)  # across machines: evaluations each node answered
    remarks: tuple[str, ...] = ()  # nodes whose ledgers claim another ε: both numbers, which is stated
    unchecked: tuple[str, ...] = ()  # columns whose ranges or categories were read from the records
    planned: int | None = None  # rounds of the plan, where the run ended before them
    unnoised: Mapping[str, str] = field(default_factory=dict)  # rounds without noise that no ε covers, by client
    date: str = field(default_factory=lambda: datetime.date.today().isoformat())  # when it was written

    @property
    def epsilon(self) -> float:
        return max((account.epsilon for account in self.accounts), default=0.0)

    @property
    def epsilon_replace_one(self) -> float | None:
        known = [account.epsilon_replace_one for account in self.accounts]
        return None if None in known else max((value for value in known if value is not None), default=0.0)

    @property
    def warnings(self) -> list[str]:
        """What weakens the guarantee."""
        found = warnings_of(self.unnoised)
        if self.repeatable:
            found.append(
                "batches and noise came from a configured seed: this was a simulation. The same run again gives the "
                "same bits, so nothing new; a run with any other setting, model, loss or record draws other noise, and "
                "counts by itself. Against anyone who knows the seed there is no privacy at all; a deployment draws "
                "from the operating system's entropy"
            )
        if self.planned is not None:
            found.append(
                f"this was written after {self.rounds} of {self.planned} rounds. When a run ends may depend on what it "
                "showed, so the ε of the whole plan is stated, not only what was spent"
            )
        if self.unchecked:
            found.append(
                f"the ranges, categories or classes of {', '.join(self.unchecked)} were read from the records and not "
                "yet replaced by public ones (data.unchecked): what they give away is not covered by ε"
            )
        if warning := delta_warning(self.privacy.delta, max((a.records for a in self.accounts), default=1)):
            found.append(warning)
        if note := caveat(self.privacy.accountant):
            found.append(f"the accountant is {self.privacy.accountant}: {note}")
        if self.evaluated:
            nodes = ", ".join(f"{client} ({answered} so far)" for client, answered in self.evaluated.items())
            found.append(
                "the exact test loss and accuracy at every evaluated model, and the number of test records, left these "
                f"nodes un-noised, evaluations answered in brackets: {nodes}. Their test records are not protected: "
                "what is stated here is for training records"
            )
        return found

    def _beside(self) -> str:
        if not self.beside:
            return ""
        sigmas = ", ".join(f"{sigma:g}" for sigma in self.beside)
        return f"Beside the gradient, one batch of a round releases values with noise multipliers {sigmas}. "

    @property
    def _unit(self) -> Unit:
        return Unit(self.unit)

    @property
    def guarantee(self) -> str:
        """What is promised, in one sentence: terminal, page and report say the same."""
        p = self.privacy
        return promise(self._unit, self.epsilon, self.epsilon_replace_one, p.delta, p.accountant)

    @property
    def working(self) -> str:
        """How it comes about, in a paragraph."""
        p, one = self.privacy, self._unit.one
        summed = "" if self._unit.is_record else f"adds up the gradients of each {one} drawn, "
        return (
            f"{self.algorithm}, {self.rounds} rounds. In each step a client draws a secret batch (every {one} enters "
            f"with probability q = {p.q:g}), {summed}cuts each {one}'s gradient to norm C = {p.clip:g}, adds Gaussian "
            f"noise of σ·C with σ = {p.sigma:g} to the sum, and divides by the expected size of the batch. "
            f"{self._beside()}All that is released from one batch is accounted as one joint event, and is in the "
            "client's ledger before the batch is drawn."
        )

    @property
    def leaves(self) -> list[str]:
        """What leaves a client, line by line; names in backticks."""
        named = [f"`{name}`: {meaning}" for name, meaning in self.released.items()]
        return [*named, f"the number of its {self._unit.many}, as a public fact"]

    @property
    def assumptions(self) -> list[str]:
        several = SEVERAL_RECORDS if self._unit.is_record else SEVERAL_CLIENTS
        return [line.format(one=self._unit.one, many=self._unit.many) for line in (*ASSUMPTIONS, *several)]

    def to_dict(self) -> dict[str, object]:
        p, one = self.privacy, self._unit.one
        return {
            "date": self.date,
            "guarantee": self.guarantee,
            "working": self.working,
            "leaves": self.leaves,
            "epsilon": self.epsilon,
            "epsilon_replace_one": self.epsilon_replace_one,
            "delta": p.delta,
            "accountant": p.accountant,
            "unit": self._unit.in_words,
            "one": one,
            "many": self._unit.many,
            "adjacency": f"zero-out of one {one}, the number of {self._unit.many} being public; replace-one beside it",
            "mechanism": {
                "name": f"Poisson-subsampled Gaussian: per-{one} clipping, one joint release per batch",
                "clip": p.clip,
                "sigma": p.sigma,
                "sigma_beside": list(self.beside),
                "sampling": {"kind": "Poisson", "q": p.q, "batch": "secret"},
            },
            "algorithm": self.algorithm,
            "rounds": self.rounds,
            "released": dict(self.released),
            "clients": [dict(vars(account)) for account in self.accounts],
            "assumptions": self.assumptions,
            "not_covered": list(NOT_COVERED),
            "warnings": self.warnings,
            "evaluated": dict(self.evaluated),
            "unnoised": dict(self.unnoised),
            "remarks": list(self.remarks),
            "versions": _versions(),
        }

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2 if len(self.accounts) <= MOST_INDENTED else None)

    def to_markdown(self) -> str:
        promise, _, rest = self.guarantee.partition(" (")
        subject, _, numbers = promise.partition("ε")
        head = [
            "# Privacy statement",
            "",
            f"{subject}**ε{numbers}** ({rest}",
            "",
            *[f"> **Warning:** {warning}." for warning in self.warnings],
            "",
            "## Mechanism",
            "",
            self.working,
            "",
            "## What leaves a client",
            "",
            *[f"- {line}" for line in self.leaves],
            "",
            "## Assumptions",
            "",
            *[f"- {line}" for line in self.assumptions],
            "",
            "## Not covered",
            "",
            *[f"- {line}" for line in NOT_COVERED],
            "",
            "## By client",
            "",
            f"| client | {self._unit.many} | ε | ε, replace-one | budget |",
            "| --- | ---: | ---: | ---: | ---: |",
        ]
        rows = [
            f"| {a.client} | {a.records} | {a.epsilon:.4f} | {_number(a.epsilon_replace_one)} | "
            f"{'–' if a.budget is None else f'{a.budget:g}'} |"
            for a in self.accounts
        ]
        libraries = ", ".join(f"{name} {number}" for name, number in _versions().items())
        remarks = ["", *[f"- {line}" for line in self.remarks]] if self.remarks else []
        return "\n".join([*head, *rows, *remarks, "", f"Written on {self.date}, computed with {libraries}.", ""])


def _priced(events: Sequence[Event], by: DPSGD, adjacency: Adjacency = "zero-out") -> float:
    return find(by.accountant).epsilon(find(by.accountant).history(events), by.delta, adjacency)


def promise(unit: Unit, epsilon: float, replace_one: float | None, delta: float, accountant: str) -> str:
    """The guarantee in one sentence."""
    return (
        f"Every {unit.one} of every client is protected with ε = {epsilon:.4f} at δ = {delta:g} (zero-out of one "
        f"{unit.one}; where one {unit.one} is replaced by another: {_number(replace_one)}), against a server that sees "
        f"every upload. Accountant: {accountant}. Unit: {unit.in_words}."
    )


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("fedfdp", "torch", "dp-accounting", "numpy")}


def _number(value: float | None) -> str:
    return "not known" if value is None else f"{value:.4f}"


ASSUMPTIONS = (
    "the number of {many} of each client is declared and public",
    "the server sees every upload (no secure aggregation is assumed) and may do with them what it likes",
    "which {many} are in a batch stays secret at the client",
)
SEVERAL_RECORDS = (
    "a person with several records, or at several clients, is protected for each record and each client separately",
)
SEVERAL_CLIENTS = (
    "one {one} at several clients is protected at each of them separately: together they may give away what the sum of "
    "their ε allows, with the sum of their δ",
)

NOT_COVERED = (
    "choosing hyper-parameters by training several times on the same records: every run that was looked at counts",
    "evaluation on raw records: the measures shown are exact and not private, and records held back for the test are "
    "not protected. A simulation measures all of them (losses, accuracies, confusion matrices, each client's own model "
    "as a reference); across machines a node that allows it gives out its test loss, its accuracy and how many test "
    "records they are of, and nothing else",
    "how many training records of each class a client has: in a simulation clients.json and the report show it "
    "exactly; across machines it stays with the holder",
    "what is published besides the uploads and what is made of them",
)


def statement(
    algorithm: Algorithm,
    name: str,
    privacy: DPSGD,
    book: Accounts,
    records: dict[str, int],
    *,
    rounds: int,
    repeatable: bool,
    before: Sequence[Event] = (),
    unit: str = "record",
    facts: EngineFacts | None = None,
    unchecked: tuple[str, ...] = (),
    planned: int | None = None,
    ahead: Accounts | None = None,
) -> Statement:
    """The statement of what these clients' ledgers show; `before`: of ranges estimated from their records.

    `facts`: what only the engine knows. `unchecked`: columns whose ranges or categories were read from the records.
    `planned`: rounds of the plan of a run that ended before them. The ε of all is stated then, or what the ledger
    lets through at most: that a run ends may depend on its releases, too. `ahead`: accounts after all of them.
    """
    by = find(privacy.ledger_accountant(adaptive=algorithm.adaptive))
    plan = () if planned is None else (*before, *repeat(algorithm.events(None, privacy), planned))
    accounts = []
    for client, count in records.items():
        ledger = book.ledger(client)
        spent, other = ledger.epsilon(), ledger.epsilon("replace-one")
        if plan:
            after = ledger if ahead is None else ahead.ledger(client)
            claim = by.claim(by.history(plan), ledger.budget, privacy.delta)
            spent = max(spent, min(max(claim, _priced(plan, privacy), after.epsilon()), ledger.ceiling))
            other = max(other, _priced(plan, privacy, "replace-one"), after.epsilon("replace-one"))
        accounts.append(Account(client, count, spent, other if math.isfinite(other) else None, ledger.budget))
    released = {**({"ranges": RANGES} if before else {}), **algorithm.released()}
    beside, facts = algorithm.joint_event(privacy).sigmas[1:], facts or EngineFacts()
    about = released, beside, repeatable, unit, facts.evaluated, facts.remarks, unchecked, planned, facts.unnoised
    return Statement(name, privacy, rounds, tuple(accounts), *about)
