"""The register: what was spent on which records, over run folders and nodes. It reads ledgers, and never a record.

Nothing is estimated: what is not known is not added silently, it is said.
"""

import datetime
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fedfdp.core.errors import RunError
from fedfdp.engines.flower.book import unit_of
from fedfdp.engines.flower.judging import answered
from fedfdp.engines.flower.policy import NodeConfig, load_node
from fedfdp.engines.flower.spent import read_node
from fedfdp.engines.flower.unnoised import ASSUMED, unnoised
from fedfdp.privacy.accounting import find
from fedfdp.privacy.accounting.events import History, bucket, merge
from fedfdp.privacy.ledger.reading import read_ledger
from fedfdp.privacy.unit import RECORD, Unit
from fedfdp.runs.folder import IDENTITY, LEDGER, PRIVACY_JSON, Json, RunFolder
from fedfdp.runs.store import find_runs

ANYONE = "any record"  # where records move between clients from run to run
_MOST_KINDS = 24  # of releases that are composed exactly; more are rounded, never to less


@dataclass(frozen=True)
class Spent:
    """What one holder spent in one run, or at its node in all of them."""

    epsilon: float  # what is promised
    delta: float
    history: History | None = None  # None where only ε is known, or where only a filter's claim holds
    budget: float | None = None
    used: float | None = None  # of the budget, where that is less than what is promised


@dataclass(frozen=True)
class Entry:
    """One run, or one node with all runs that it took part in."""

    place: Path
    kind: str  # run, or node
    date: str  # when it was last written
    data: str  # the name of the records
    unit: Unit
    method: str
    state: str  # finished, or how far it is
    holders: dict[str, Spent] = field(default_factory=dict)  # empty: without privacy
    fingerprint: str = ""  # of records and who holds which
    fixed_holders: bool = False  # whether a record is always at the same holder, whatever the seed
    seeded: bool = False  # whether a configured seed made batches and noise
    evaluations: int = 0  # answered on raw test records
    warnings: tuple[str, ...] = ()
    unnoised: Mapping[str, str] = field(default_factory=dict)  # rounds without noise that no ε covers, by holder

    @property
    def epsilon(self) -> float | None:
        return max((spent.epsilon for spent in self.holders.values()), default=None)

    @property
    def delta(self) -> float | None:
        return max((spent.delta for spent in self.holders.values()), default=None)


@dataclass(frozen=True)
class Total:
    """What one holder's records have cost: however later runs were chosen, and if all had been fixed beforehand."""

    holder: str
    runs: int
    epsilon: float  # the sum of the runs' ε
    delta: float  # the sum of their δ
    planned: float | None  # ε of all releases together at the largest single δ, if they were fixed beforehand
    planned_delta: float
    budget: float | None  # where one budget is for all of it, as at a node
    used: float | None = None  # of that budget


@dataclass(frozen=True)
class Records:
    """All that was spent on one set of records."""

    name: str
    unit: Unit
    entries: tuple[Entry, ...]
    totals: tuple[Total, ...]  # the dearest first

    @property
    def unprotected(self) -> list[Entry]:
        """Runs without privacy."""
        return [entry for entry in self.entries if not entry.holders]

    @property
    def unnoised(self) -> dict[str, str]:
        """Holders that have answered rounds without noise, by what their nodes, or runs' statements, say."""
        nodes_last = sorted(self.entries, key=lambda entry: entry.kind == "node")  # what a node says itself is newer
        return {holder: said for entry in nodes_last for holder, said in entry.unnoised.items()}

    @property
    def moved(self) -> bool:
        """Whether records were dealt out in different ways, so that one cannot be followed from run to run."""
        return any(total.holder == ANYONE for total in self.totals)


def register(places: Sequence[Path]) -> list[Records]:
    """What is known of these runs, folders of runs, and nodes (their .toml files), by records."""
    entries = [entry for place in places for entry in _entries(place)]
    unique = list({entry.place.resolve(): entry for entry in entries}.values())
    return [_records(group, unit) for same in _on_the_same_records(unique) for unit, group in _by_unit(same)]


def _on_the_same_records(entries: list[Entry]) -> list[list[Entry]]:
    """Entries whose records have one name, or are the same under another name."""
    sets: list[list[Entry]] = []
    for entry in entries:
        marks = {entry.data, entry.fingerprint} - {""}
        joined = [known for known in sets if any(marks & {one.data, one.fingerprint} for one in known)]
        sets = [known for known in sets if known not in joined]
        sets.append([*(one for known in joined for one in known), entry])
    return sets


def _by_unit(entries: list[Entry]) -> Iterator[tuple[Unit, list[Entry]]]:
    """Entries by whom they protect. Whoever protects a person protects each record of them, not the other way round."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.unit.name, []).append(entry)
    for name, group in groups.items():
        unit = group[0].unit
        others = [entry for entry in entries if entry.unit.name != name and entry.holders]
        if others and not unit.is_record:
            names = ", ".join(entry.place.name for entry in others[:3])
            whom = f"protect one {others[0].unit.one}, not one {unit.one}"
            lost = f"{len(others)} run(s) on the same records {whom} ({names})"
            group = [replace(group[0], warnings=(*group[0].warnings, lost)), *group[1:]]
        yield unit, group + (others if unit.is_record else [])


def _entries(place: Path) -> list[Entry]:
    if place.is_file() and place.suffix == ".toml":
        return [_node(load_node(place))]
    if not place.exists():
        raise RunError(f"{place}: there is nothing; give a run, a folder with runs below it, or a node's .toml file")
    if (place / LEDGER).is_file() and not (place / IDENTITY).is_file():
        raise RunError(f"{place} is a node's folder; give the node's .toml file, which says whom its ledger is for")
    return [_run(run) for run in find_runs([place])]


def _node(config: NodeConfig) -> Entry:
    folder = Path(config.folder)
    names = set[str]()
    charges, warning = read_node(folder, config.second, lambda entry: names.add(entry.run))
    bare = replace(unnoised(folder, config.second), restored=ASSUMED in names)
    spent = _spent(charges.histories or {config.name: ()}, charges.accountant, charges.delta, {}, charges.budget)
    # Whether more rounds follow may depend on what the last ones showed: then only the whole budget holds.
    promised = {n: replace(s, epsilon=max(s.epsilon, s.budget or 0.0), used=s.epsilon) if s.epsilon else s
                for n, s in spent.items()}  # fmt: skip
    written = folder / LEDGER if (folder / LEDGER).is_file() else config.second
    return Entry(
        folder, "node", _date(written), f"records of {config.name}", Unit(unit_of(charges.header)),
        "all runs", "open", promised,
        fixed_holders=True, evaluations=answered(folder, config.second),
        warnings=(warning,) if warning else (), unnoised={config.name: bare.in_words()} if bare else {},
    )  # fmt: skip


def _run(run: RunFolder) -> Entry:
    config, said = run.config(), run.privacy()
    data, summary = config.get("data", {}), run.summary() if run.finished else {}
    source = data.get("source")
    history = run.metrics()
    state = "finished" if run.finished else f"at round {history[-1]['round']}" if history else "begun"
    named = config.get("algorithm", {}).get("name") or "?"
    seeded = config.get("randomness", "seeded") == "seeded" and config.get("engine", "local") != "flower"
    return Entry(
        run.path, "run", _date(run.path / (PRIVACY_JSON if said else IDENTITY)),
        Path(source).name if source else str(summary.get("data", "records given in Python")),
        Unit(_unit(said, data)), str(named), state, _holders(run, config, said),
        fingerprint=str(run.identity().get("data", "")), fixed_holders=data.get("holder") is not None,
        seeded=seeded, evaluations=sum((said or {}).get("evaluated", {}).values()),
        warnings=tuple((said or {}).get("warnings", ())), unnoised=(said or {}).get("unnoised", {}),
    )  # fmt: skip


def _holders(run: RunFolder, config: Json, said: Json | None) -> dict[str, Spent]:
    """The largest of what the ledger here shows and what the statement says: of nodes, or of a whole plan.

    A run that neither ended nor has a statement may have been planned to spend its whole budget.
    """
    stated = {account["client"]: account for account in (said or {}).get("clients", ())}
    privacy, delta = config.get("privacy") or {}, float((said or {}).get("delta", 0.0))
    budgets = {**(privacy.get("budgets") or {}), **{name: account["budget"] for name, account in stated.items()}}
    found = {
        name: Spent(account["epsilon"], delta, None, account["budget"])
        for name, account in stated.items()
        if account["epsilon"] or not (run.path / LEDGER).is_file()
    }
    if not (run.path / LEDGER).is_file():
        return found
    charges = read_ledger(run.path / LEDGER)
    shown = _spent(charges.histories, charges.accountant, charges.delta, budgets, privacy.get("epsilon"))
    for name, spent in shown.items():
        least = found[name].epsilon if name in found else 0.0
        least = (spent.budget or 0.0) if said is None and not run.finished else least
        enough = least <= spent.epsilon * (1 + 1e-9)
        found[name] = spent if enough else replace(spent, epsilon=least, history=None)
    return found


def _spent(
    histories: dict[str, History], by: str, delta: float, budgets: dict[str, float | None], budget: float | None
) -> dict[str, Spent]:
    accountant = find(by)
    found = {}
    for name, history in histories.items():
        own = budgets.get(name, budget)
        claim = accountant.claim(history, own, delta)
        found[name] = Spent(claim, delta, None if accountant.adaptive else history, own)
    return found


def _records(entries: list[Entry], unit: Unit) -> Records:
    private = [entry for entry in entries if entry.holders]
    moved = len({e.fingerprint for e in private}) > 1 and not all(entry.fixed_holders for entry in private)
    by_holder: dict[str, list[Spent]] = {}
    for entry in private:
        for name, spent in ({ANYONE: _most(entry)} if moved else entry.holders).items():
            by_holder.setdefault(name, []).append(spent)
    totals = sorted((_total(name, parts) for name, parts in by_holder.items()), key=lambda t: (-t.epsilon, t.holder))
    return Records(entries[0].data, unit, tuple(sorted(entries, key=lambda e: e.date)), tuple(totals))


def _most(entry: Entry) -> Spent:
    """At least what any client of this run spent: of every kind of release, the largest number."""
    spent = list(entry.holders.values())
    most: dict[tuple[float, float], int] = {}
    for each in spent:
        for q, sigma, count in each.history or ():
            most[q, sigma] = max(count, most.get((q, sigma), 0))
    whole = merge((q, sigma, count) for (q, sigma), count in most.items())
    known = all(each.history is not None for each in spent)
    return Spent(max(s.epsilon for s in spent), max(s.delta for s in spent), whole if known else None)


def _total(holder: str, parts: list[Spent]) -> Total:
    delta = max(part.delta for part in parts)
    planned = None
    if all(part.history is not None for part in parts):
        whole = bucket(merge(*(part.history or () for part in parts)), _MOST_KINDS)
        planned = find("pld").epsilon(whole, delta)
    (alone, used) = (parts[0].budget, parts[0].used) if len(parts) == 1 else (None, None)
    total = sum(part.epsilon for part in parts)
    return Total(holder, len(parts), total, sum(part.delta for part in parts), planned, delta, alone, used)


def _unit(said: Json | None, data: Json) -> str:
    if said is not None:
        return str(said.get("one") or said["unit"].partition(" in column ")[2] or RECORD)
    return str(data.get("unit") or RECORD)


def _date(file: Path) -> str:
    return datetime.date.fromtimestamp(file.stat().st_mtime).isoformat()


def odds(epsilon: float, before: float) -> float:
    """How sure someone can be at most after all releases, who thought it this likely before them."""
    if epsilon > 700:
        return 1.0
    return before * math.exp(epsilon) / (1 - before + before * math.exp(epsilon))


def distinct(entries: Iterable[Entry]) -> list[str]:
    """The warnings of all entries, each once."""
    return list(dict.fromkeys(warning for entry in entries for warning in entry.warnings))
