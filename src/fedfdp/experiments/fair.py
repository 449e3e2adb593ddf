"""The comparison of the fair methods and of personal models, over images, holders by nature and domains, as data."""

from functools import partial

from fedfdp.experiments.methods import compared_methods, methods_of
from fedfdp.experiments.paper import CIFAR, FASHION
from fedfdp.experiments.shapes import TUNING_SEED, Changes, Column, Experiment, Row, at_rate, datasets

SILO_LABELS = {
    "arizona-hospitals": "17 hospitals of Arizona",
    "nyc-flights": "16 airlines of New York",
    "tennessee-schools": "79 schools of Tennessee",
    "us-unemployment": "51 states of the US",
    "palmer-penguins": "3 islands of penguins",
}
FAIR_GRID = {FASHION: (16.0, 64.0), CIFAR: (8.0, 32.0)}  # FedAvg's best at `laptop`, and a quarter of it
FAIR_USUAL = (2.0, 8.0, 32.0, 128.0)  # for the others


def _rows(private: bool) -> tuple[Row, ...]:
    """FedAvg, the rules that weigh updates by losses or by each other, and ours."""
    known = methods_of(private=private)
    return tuple(Row(key, known[key].label, key) for key in compared_methods())


def _tried_rows() -> tuple[Row, ...]:
    """Of each method that is compared, a row for every value of its own setting that is tried; x is η."""
    rows = []
    for method in compared_methods().values():
        if method.own is None:
            rows.append(Row(method.key, method.label, method.key, at=at_rate))
            continue
        name, values = method.own
        for value in values:
            at = partial(at_rate, **{f"algorithm.{name}": value})
            rows.append(Row(f"{method.key}-{value:g}", f"{method.label}, {name} = {value:g}", method.key, at=at))
    return tuple(rows)


def _silos() -> tuple[Column, ...]:
    """Holders by nature, and digits of six domains: a small model and a part of the records, for seconds a run."""
    digits: Changes = {"model.name": "mlp", "data.fraction": 0.3}
    domains = Column("6 domains of digits (MLP, 30 % of the records)", "domain-digits", digits)
    return (*(Column(label, name) for name, label in SILO_LABELS.items()), domains)


def _tuning(columns: tuple[Column, ...]) -> Experiment:
    """Half of the rounds of every column of `fair`; `tuning.in_turn` says which η and own settings are run."""
    return Experiment(
        "tune-fair",
        f"Settings of the fair methods: seed {TUNING_SEED} and its partition, half of the rounds",
        _tried_rows(),
        tuple(
            Column(f"{c.label}, η = {x:g}", c.dataset, c.settings, x=x)
            for c in columns
            for x in FAIR_GRID.get(c.dataset, FAIR_USUAL)
        ),
        x_label="η",
        log_x=True,
        rounds_share=1 / 2,
        seeds=(TUNING_SEED,),
        near_best=0.005,
    )


def fair() -> tuple[Experiment, ...]:
    """The comparison at ε = 3.52 and without privacy, and how its settings are tuned."""
    columns = (*datasets(), *_silos())
    return (
        Experiment("fair", "Fair aggregation at ε = 3.52", _rows(True), columns),
        Experiment("fair-plain", "Fair aggregation, no privacy", _rows(False), datasets(), private=False),
        _tuning(columns),
    )
