"""What an experiment found: for each cell the runs of its seeds with mean and spread, and the best of each column."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field

from fedfdp.experiments.methods import methods_of
from fedfdp.experiments.paper import CLAIMS, CONTRADICTIONS, printed
from fedfdp.experiments.scales import NATURAL, PRETRAINED, Scale
from fedfdp.experiments.shapes import Column, Experiment, Row

ALONE = "local"  # the method in which every client trains by itself


@dataclass(frozen=True)
class Found:
    """One run at its end, or when it first reached a target. A measure is None if it was not reached or not finite."""

    seed: int
    config: str  # the first digits of the config's hash
    rounds: int
    epsilon: float | None
    lr: float
    tuned_on: str
    accuracy: float | None
    psi: float | None
    psi_train: float | None
    psi_local: float | None
    worst_accuracy: float | None
    seconds: float
    tuned_for: str = ""  # the method that η was tuned for
    own: dict[str, float] = field(default_factory=dict)  # the method's own setting, where it was tuned too
    by_client: tuple[float | None, ...] = ()  # the accuracy of each client


@dataclass(frozen=True)
class Statistic:
    """Mean and sample standard deviation; a single run has no spread."""

    mean: float
    spread: float | None


@dataclass(frozen=True)
class Cell:
    row: Row
    column: Column
    runs: tuple[Found, ...]

    def of(self, measure: str) -> Statistic | None:
        """None if any of the runs lacks the measure: a mean over the others would flatter."""
        values = [getattr(run, measure) for run in self.runs]
        if not values or any(value is None for value in values):
            return None
        return Statistic(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


@dataclass(frozen=True)
class Results:
    experiment: Experiment
    scale: Scale
    seeds: tuple[int, ...]
    cells: tuple[Cell, ...]

    def column(self, column: Column) -> tuple[Cell, ...]:
        return tuple(cell for cell in self.cells if cell.column == column)

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(c for c in self.experiment.columns if any(cell.column == c for cell in self.cells))

    def best(self, column: Column, measure: str, choose: Callable[..., float]) -> float | None:
        """The best mean of the column, which is marked; None if there is a single row."""
        means = [found.mean for cell in self.column(column) if (found := cell.of(measure))]
        return choose(means) if len(means) > 1 else None

    def worse_off(self, cell: Cell) -> Statistic | None:
        """How many clients are worse off than in the run of the same seed in which each trains by itself.

        None without such a run, and for that one itself.
        """
        alone = {run.seed: run for c in self.column(cell.column) if c.row.method == ALONE for run in c.runs}
        if cell.row.method == ALONE or not all(run.seed in alone for run in cell.runs):
            return None
        pairs = [zip(run.by_client, alone[run.seed].by_client, strict=True) for run in cell.runs]
        counts = [sum(mine is not None and own is not None and mine < own for mine, own in pair) for pair in pairs]
        return Statistic(statistics.fmean(counts), statistics.stdev(counts) if len(counts) > 1 else None)

    def notes(self) -> list[str]:
        """What to know beside the numbers: how the setting differs from the paper's, and where the paper disagrees."""
        name, private = self.experiment.name, self.experiment.private
        natural = [cell.column.dataset in NATURAL and bool(self.scale.presets) for cell in self.cells]
        pretrained = [cell.column.dataset == PRETRAINED and bool(self.scale.presets) for cell in self.cells]
        own = [any(either) for either in zip(natural, pretrained, strict=True)]
        notes = [] if all(own) else [f"scale {self.scale.name}: {self.scale.description}"]
        if private:
            notes.append("every loss upload is paid for; ε by PLD (ALI-DPFL: a Rényi filter), per record, δ = 1e-5")
            notes.append(
                "in every row the released model is the running average (0.95) of the global weights, which is free"
            )
        methods = methods_of(private=private)
        same = [methods[c.row.method] for c in self.cells if methods[c.row.method].same_as]
        if same:
            labels = " and ".join(dict.fromkeys(method.label for method in same))
            notes.append(f"with one local step per round and everyone taking part {labels} are FedAvg: the same runs")
        if any(natural):
            notes.append("holders by nature: data, model, q, C and rounds are those of the data set's preset")
        if any(pretrained):
            rest = f"model, q, C and rounds are those of the preset {PRETRAINED}"
            notes.append(f"public pretraining: features that others learnt; {rest}")
        if self.scale.name in ("laptop", "brief") and private:
            notes.append("η chosen on seed 100 and its partition; tuned.toml says which were tried for each method")
            if any("data.clients" in cell.column.settings for cell in self.cells):
                notes.append("it was chosen with 10 holders; with K of them it is multiplied by √(10/K)")
        elif not self.experiment.name.startswith("tune"):
            notes.append(
                "each method with its own best η of one grid, tuned on seed 100 and its partition (the paper: η = "
                f"{1.0 if private else 0.1:g} for all)"
            )
        borrowed = {run.tuned_on for c in self.cells for run in c.runs if run.tuned_on != c.column.dataset}
        if borrowed and self.scale.source is None and not name.startswith("tune"):
            notes.append(f"some η were tuned on {', '.join(sorted(borrowed))}, not on the column's own data set")
        lent = {
            c.row.label
            for c in self.cells
            for run in c.runs
            if run.tuned_for not in ("", methods[c.row.method].runs_as)
        }
        if lent and not name.startswith("tune"):
            notes.append(f"not tuned yet, so with FedAvg's η: {', '.join(sorted(lent))}")
        if claim := CLAIMS.get(name):
            notes.append(f"the paper says of its figure: {claim}")
        return notes + [f"in the paper: {text}" for text in CONTRADICTIONS.get(name, ())]

    def to_dict(self) -> dict[str, object]:
        """All of it, for JSON."""
        paper = printed(self.experiment.name)
        cells = []
        for cell in self.cells:
            quoted = paper.get((cell.row.key, cell.column.label))
            entry: dict[str, object] = {
                "row": cell.row.key,
                "label": cell.row.label,
                "column": cell.column.label,
                "dataset": cell.column.dataset,
                "x": cell.column.x,
                "target": cell.column.target,
                "paper": asdict(quoted) if quoted else None,
            }
            for measure in MEASURES:
                found = cell.of(measure)
                entry[measure] = asdict(found) if found else None
            if (worse := self.worse_off(cell)) is not None:
                entry["worse_off"] = asdict(worse)
            cells.append({**entry, "runs": [_without_clients(run) for run in cell.runs]})
        return {
            "experiment": self.experiment.name,
            "title": self.experiment.title,
            "scale": self.scale.name,
            "seeds": list(self.seeds),
            "notes": self.notes(),
            "claims": [asdict(claim) for claim in claims(self)],
            "cells": cells,
        }


def _without_clients(run: Found) -> dict[str, object]:
    return {name: value for name, value in asdict(run).items() if name != "by_client"}


MEASURES = ("accuracy", "psi", "psi_train", "worst_accuracy", "psi_local", "epsilon")


@dataclass(frozen=True)
class Claim:
    """Our method against the best baseline of a column: is Ψ at most half of its, is accuracy no lower?"""

    column: str
    psi: float
    best_psi: float
    best_psi_of: str
    accuracy: float
    best_accuracy: float
    best_accuracy_of: str
    holds: bool


def claims(results: Results) -> list[Claim]:
    """For the paper's tables, at a scale that allows a judgement.

    Best Ψ and best accuracy may be of two different baselines.
    """
    methods = methods_of(private=results.experiment.private)
    experiment = results.experiment
    if experiment.targets or experiment.x_label or results.scale.name == "smoke" or not printed(experiment.name):
        return []
    found = []
    for column in results.columns:
        cells = results.column(column)
        baselines = [cell for cell in cells if methods[cell.row.method].baseline]
        ours = [cell for cell in cells if cell.row.method == "fedfdp"]
        psi, accuracy = _means(baselines, "psi"), _means(baselines, "accuracy")
        if not (ours and psi and accuracy and (p := ours[0].of("psi")) and (a := ours[0].of("accuracy"))):
            continue
        lowest, highest = min(psi), max(accuracy)
        holds = p.mean <= lowest[0] / 2 and a.mean >= highest[0]
        found.append(Claim(column.label, p.mean, *lowest, a.mean, *highest, holds))
    return found


def _means(cells: Sequence[Cell], measure: str) -> list[tuple[float, str]]:
    return [(statistic.mean, cell.row.label) for cell in cells if (statistic := cell.of(measure))]
