"""From an experiment to its results: a config for each cell and seed, one sweep over all, then the runs are read."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fedfdp.core.errors import RunError, SettingError, nearest
from fedfdp.experiments.methods import Method, StepSize, methods_of, tuned_lr
from fedfdp.experiments.results import Cell, Found, Results
from fedfdp.experiments.scales import NATURAL, Scale
from fedfdp.experiments.shapes import Changes, Column, Experiment, Row
from fedfdp.runs import config as configs
from fedfdp.runs.config import Config
from fedfdp.runs.layers import Settings, layered
from fedfdp.runs.store import Store, short_hash
from fedfdp.runs.sweep import RunProgress, sweep

PRIVACY = {"epsilon": 3.52, "delta": 1e-5, "sigma": 2.0, "sigma_loss": 5.0, "q": 0.05, "clip": 0.1}
AVERAGE = 0.95


@dataclass(frozen=True)
class Planned:
    """One run that an experiment needs."""

    row: Row
    column: Column
    config: Config
    step: StepSize


def narrowed(
    experiment: Experiment, *, datasets: Sequence[str] = (), methods: Sequence[str] = (), at: Sequence[str] = ()
) -> Experiment:
    """Only these data sets' columns and these rows; of a sweep only these values."""
    if at and not experiment.x_label:
        raise SettingError("--at", at[0], f"{experiment.name} has no values to choose from", "leave --at out")
    for name, given, known in (
        ("--dataset", datasets, [c.dataset for c in experiment.columns]),
        ("--methods", methods, [key for r in experiment.rows for key in (r.key, r.method)]),
        ("--at", at, [f"{c.x:g}" for c in experiment.columns]),
    ):
        for value in given:
            if value not in known:
                raise SettingError(name, value, nearest(value, set(known)))
    columns = tuple(
        c for c in experiment.columns if (not datasets or c.dataset in datasets) and (not at or f"{c.x:g}" in at)
    )
    rows = tuple(r for r in experiment.rows if not methods or r.key in methods or r.method in methods)
    return replace(experiment, columns=columns, rows=rows)


def open_config(experiment: Experiment, row: Row, column: Column, scale: Scale, seed: int) -> tuple[Config, StepSize]:
    """The settings of a cell with one seed; under privacy the rounds are left open."""
    private = experiment.private
    methods = methods_of(private=private)
    method = methods[methods[row.method].runs_as]
    tuned = tuned_lr(method.key, column.dataset, private=private, scale=scale.name)
    source = scale.source or column.dataset
    values: Settings = {
        "name": f"{method.key}-{source}" + ("" if private else "-plain") + ("-fine" if experiment.targets else ""),
        "seed": seed,
        "data": {"source": source, "clients": 10, "partition": "dirichlet", "beta": 0.1, "fraction": scale.fraction},
        "model": {"name": scale.model},
        "algorithm": dict(method.settings),
        "server": {"average": AVERAGE if private else 0.0},
    }
    if private:
        values["privacy"] = {**PRIVACY, **method.privacy}
    else:
        values["rounds"] = max(1, round(scale.plain_rounds * experiment.rounds_share))
    changes = {**column.settings, **row.at(column.x)}
    if column.dataset in scale.presets:
        _as_preset(values, layered(scale.presets[column.dataset]), method, changes, keeps_sigma=experiment.keeps_sigma)
    if not private and scale.plain_decay != 1.0:
        values["algorithm"]["lr_decay"] = scale.plain_decay
    values["algorithm"] |= {**tuned.own, "lr": tuned.lr * row.step(column.x)}
    for name, value in changes.items():
        section, _, setting = name.partition(".")
        values[section] = {**values[section], setting: value}
    if scale.clients:
        values["data"]["clients"] = scale.clients[values["data"]["clients"]]
    if private and experiment.targets and scale.most_epsilon:
        values["privacy"]["epsilon"] = min(values["privacy"]["epsilon"], scale.most_epsilon)
    if private and scale.presets.get(column.dataset) and "data.clients" in changes:
        # η was chosen with 10 holders. Each of K adds its noise to a K-th of the records: that of the mean grows as √K.
        values["algorithm"]["lr"] *= math.sqrt(10 / values["data"]["clients"])
    config = configs.from_dict(values)
    return config, replace(tuned, lr=config.algorithm.lr)


def _as_preset(values: Settings, preset: Settings, method: Method, changes: Changes, *, keeps_sigma: bool) -> None:
    """Takes data, features, model, q, σ and rounds from a preset; of FedFDP ours, how it is fair as well.

    σ is the least that ε allows for the preset's rounds, except where σ is the question, or the method sets it.
    """
    values.update({name: preset[name] for name in ("data", "features", "model") if name in preset})
    if method.key == "fedfdp":
        values["algorithm"] = {**values["algorithm"], **{k: v for k, v in preset["algorithm"].items() if k != "name"}}
    if "privacy" not in values:
        return
    values["privacy"] = {**values["privacy"], **preset["privacy"], **method.privacy}
    if keeps_sigma or "sigma" in method.privacy:
        values["privacy"].setdefault("sigma", PRIVACY["sigma"])
        return
    changes.pop("privacy.sigma", None)
    values["rounds"] = preset["rounds"]


def config_of(experiment: Experiment, row: Row, column: Column, scale: Scale, seed: int) -> Planned:
    """The run of a cell with one seed, nothing left open.

    Under privacy it has all the rounds that ε allows, or fewer if the scale says so, with the least noise for them.
    """
    config, step = open_config(experiment, row, column, scale, seed)
    whole = config.resolved()
    assert whole.rounds is not None
    rounds, most = whole.rounds, scale.most_private_rounds
    if config.data.source in NATURAL:  # as their presets say
        most = None
    if whole.privacy is not None:
        if most and rounds > most and (scale.cut or not experiment.keeps_sigma):
            rounds = most
            if not scale.cut:
                whole = replace(whole, rounds=most, privacy=replace(whole.privacy, sigma=None)).resolved()
        rounds = math.ceil(rounds * experiment.rounds_share)
        rounds = min(rounds, experiment.most_rounds or rounds)
    config = whole
    often = experiment.evaluations
    often = often if experiment.targets else min(often, scale.most_evaluations or often)
    config = replace(config, rounds=rounds, eval_every=max(1, math.ceil(rounds / often)))
    return Planned(row, column, config, step)


def plan_runs(experiment: Experiment, scale: Scale, seeds: Sequence[int]) -> list[Planned]:
    return [
        config_of(experiment, row, column, scale, seed)
        for seed in seeds  # seeds outermost: if a sweep is cut short, every column has some runs
        for column in experiment.columns
        for row in experiment.rows
    ]


def reproduce(
    experiment: Experiment,
    scale: Scale,
    store: Store,
    *,
    seeds: int = 1,
    jobs: int | None = None,
    ray: str | None = None,
    log: str | None = None,
    watch: Callable[[RunProgress], None] = lambda progress: None,
) -> Results:
    """Runs what is missing and reads everything. If it is killed, the same call continues where the first one was."""
    chosen = experiment.seeds or tuple(range(seeds))
    planned = plan_runs(experiment, scale, chosen)
    failed = sweep([p.config for p in planned], store, jobs=jobs, ray=ray, log=log, watch=watch)
    if failed:
        path, reason = next(iter(failed.items()))
        raise RunError(f"{len(failed)} of {len(planned)} runs failed; the first, {path.name}: {reason}")
    found: dict[tuple[str, str], list[Found]] = {}
    for p in planned:
        found.setdefault((p.row.key, p.column.label), []).append(read(store, p))
    cells = tuple(
        Cell(row, column, tuple(found[row.key, column.label]))
        for column in experiment.columns
        for row in experiment.rows
    )
    return Results(experiment, scale, chosen, cells)


def read(store: Store, planned: Planned) -> Found:
    """The measures of a finished run: at its end, or when it first reached the column's target."""
    run, config = store.run(planned.config), planned.config
    summary = run.summary()
    seen: Settings = summary
    if (target := planned.column.target) is not None:
        reached = [entry for entry in run.metrics() if (entry["accuracy"] or 0.0) >= target]
        seen = reached[0] if reached else {}
    return Found(
        seed=config.seed,
        config=short_hash(config),
        rounds=seen["round"] if "round" in seen else summary["rounds"],
        epsilon=seen.get("epsilon"),
        lr=planned.step.lr,
        own=planned.step.own,
        tuned_on=planned.step.tuned_on,
        tuned_for=planned.step.tuned_for,
        **{name: seen.get(name) for name in ("accuracy", "psi", "psi_train", "psi_local", "worst_accuracy")},
        seconds=summary["seconds"],
        by_client=tuple((run.metrics() or [{}])[-1].get("clients", {}).get("accuracy", ())),
    )
