"""The paper's experiments as data: rows, columns, and the setting that each of them changes. Nothing is run here."""

from collections.abc import Callable

from fedfdp.core.errors import SettingError, nearest
from fedfdp.experiments.fair import fair
from fedfdp.experiments.methods import Method, plain_methods, private_methods
from fedfdp.experiments.paper import CIFAR, FASHION, MNIST
from fedfdp.experiments.scales import PRETRAINED
from fedfdp.experiments.shapes import DATASET_LABELS, TUNING_SEED, Changes, Column, Experiment, Row, at_rate, datasets

PRIVATE_GRID, PLAIN_GRID = (0.5, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0), (0.1, 0.3, 1.0)


def _private_rows() -> tuple[Row, ...]:
    return tuple(Row(m.key, m.label, m.key) for m in private_methods().values())


def _plain_rows() -> tuple[Row, ...]:
    return tuple(Row(m.key, m.label, m.key) for m in plain_methods().values())


def _robustness() -> tuple[Column, ...]:
    return (
        Column("MNIST Dir(0.1)", MNIST, {"data.beta": 0.1}),
        Column("MNIST Dir(0.5)", MNIST, {"data.beta": 0.5}),
        Column("FashionMNIST Dir(1)", FASHION, {"data.beta": 1.0}),
        *(Column(f"{n} clients", CIFAR, {"data.clients": n}) for n in (10, 20, 50)),
    )


def _budgets() -> tuple[Column, ...]:
    sigmas = {1.0: 2.0, 2.0: 2.0, 3.0: 2.0, 4.0: 1.65}
    return tuple(Column(f"ε = {e:g}", FASHION, {"privacy.epsilon": e, "privacy.sigma": s}) for e, s in sigmas.items())


def _targets() -> tuple[Column, ...]:
    settings: Changes = {"data.beta": 0.05, "privacy.epsilon": 6.0}
    return tuple(Column(f"{t} %", MNIST, settings, target=t / 100) for t in (80, 85, 90, 95))


def _over(
    values: tuple[float, ...],
    symbol: str,
    datasets: tuple[str, ...] = (MNIST, FASHION),
    settings: Changes | None = None,
) -> tuple[Column, ...]:
    """A column for each x on every data set: the paper's figures have two."""
    return tuple(
        Column(f"{DATASET_LABELS[dataset]}, {symbol} = {x:g}", dataset, dict(settings or {}), x=x)
        for dataset in datasets
        for x in values
    )


def _lambda_rows() -> tuple[Row, ...]:
    by_record: Changes = {"algorithm.server_lam": 0.0, "algorithm.coefficients": "bounded"}
    return (
        Row("paper", "λ in `paper` coefficients", "fedfdp-paper", at=lambda x: {"algorithm.lam": x}),
        Row("bounded", "λ in `bounded` coefficients", "fedfdp", at=lambda x: {"algorithm.lam": x, **by_record}),
        Row("server", "λ_s at the server (ours)", "fedfdp", at=lambda x: {"algorithm.server_lam": x}),
    )


def _adaptive_rows() -> tuple[Row, ...]:
    fixed = tuple(
        Row(f"fixed-{x:g}", f"λ_s = {x:g}", "fedfdp", at=lambda _, x=x: {"algorithm.server_lam": x})  # type: ignore[misc]
        for x in (0.0, 2.5, 5.0, 10.0, 20.0)
    )
    adaptive = Row("adaptive", "adaptive λ_s", "fedfdp", at=lambda _: {"algorithm.server_rule": "adaptive"})
    return (*fixed, adaptive)


def _clip_rows() -> tuple[Row, ...]:
    def clip(x: float) -> Changes:
        return {"privacy.clip": x}

    return (
        Row("paper", "FedFDP `paper`, η fixed", "fedfdp-paper", at=clip),
        Row("fixed", "FedFDP ours, η fixed", "fedfdp", at=clip),
        Row("scaled", "FedFDP ours, η·C fixed", "fedfdp", at=clip, step=lambda x: 0.1 / x),
    )


def _forms(at: Callable[[float], Changes], *methods: str) -> tuple[Row, ...]:
    """The private average and the forms of FedFDP, or those of them that are named."""
    names = {"fedavg": "DP-FedAvg", "fedfdp-paper": "FedFDP `paper`", "fedfdp": "FedFDP ours"}
    return tuple(Row(key, names[key], key, at=at) for key in methods or names)


def _tuning(kind: str, methods: dict[str, Method], *, private: bool) -> Experiment:
    grid = PRIVATE_GRID if private else PLAIN_GRID
    return Experiment(
        f"tune-{kind}",
        f"Step sizes, {kind}: seed {TUNING_SEED} and its partition, half of the rounds",
        tuple(Row(m.key, m.label, m.key, at=at_rate) for m in methods.values() if not m.same_as),
        tuple(Column(f"{DATASET_LABELS[d]}, η = {x:g}", d, x=x) for d in DATASET_LABELS for x in grid),
        private=private,
        x_label="η",
        log_x=True,
        rounds_share=1 / 2,
        seeds=(TUNING_SEED,),
    )


def experiments() -> dict[str, Experiment]:
    """All experiments by name. Table 1, which trains nothing, is in `traffic.py`."""

    def sigma(x: float) -> Changes:
        return {"privacy.sigma": x}

    def epsilon(x: float) -> Changes:
        return {"privacy.epsilon": x}

    found = (
        Experiment("table2", "FedFair and baselines, no privacy", _plain_rows(), datasets(), private=False),
        Experiment("table3", "FedFDP and baselines at ε = 3.52", _private_rows(), datasets()),
        Experiment("table4", "Heterogeneity and clients, no privacy", _plain_rows(), _robustness(), private=False),
        Experiment("table5", "Heterogeneity and clients at ε = 3.52", _private_rows(), _robustness()),
        Experiment("table6", "Budgets on FashionMNIST", _private_rows(), _budgets()),
        Experiment(
            "table7",
            "ε and Ψ at target accuracies, MNIST Dir(0.05)",
            _private_rows(),
            _targets(),
            evaluations=60,
            keeps_sigma=True,
        ),
        Experiment(
            "figure-lambda",
            "The fairness parameter",
            _lambda_rows(),
            _over((0.0, 0.1, 1.0, 5.0, 20.0), "λ"),
            x_label="λ",
        ),
        Experiment(
            "figure-clip",
            "The clipping bound",
            _clip_rows(),
            _over((0.01, 0.1, 1.0, 5.0, 10.0), "C"),
            x_label="C",
            log_x=True,
        ),
        Experiment(
            "figure-sigma",
            "The noise multiplier at ε = 2",
            _forms(sigma),
            _over((1.0, 1.5, 2.0, 2.5, 3.0), "σ", settings={"privacy.epsilon": 2.0}),
            x_label="σ",
            keeps_sigma=True,
        ),
        Experiment(
            "figure-tradeoff",
            "Ψ and ε where 60 % accuracy is reached, by σ",
            _forms(sigma),
            tuple(
                Column(c.label, c.dataset, {"privacy.epsilon": 6.0}, x=c.x, target=0.6)
                for c in _over((1.0, 1.5, 2.0, 3.0, 4.0), "σ")
            ),
            x_label="σ",
            evaluations=40,
            keeps_sigma=True,
            most_rounds=120,
        ),
        Experiment(
            "figure-epsilon",
            "The budget",
            _forms(epsilon, "fedavg", "fedfdp"),
            _over((1.0, 2.0, 3.52, 8.0), "ε", tuple(DATASET_LABELS)),
            x_label="ε",
            log_x=True,
        ),
        Experiment(
            "pretrained",
            "CIFAR-10 with public pretraining at ε = 3.52",
            tuple(Row(key, private_methods()[key].label, key) for key in ("fedavg", "fedfdp")),
            (Column("CIFAR-10, EfficientNet-Lite0", PRETRAINED),),
        ),
        Experiment("adaptive", "Fixed and adaptive λ_s at ε = 3.52", _adaptive_rows(), datasets()),
        _tuning("private", private_methods(), private=True),
        _tuning("nonprivate", plain_methods(), private=False),
        *fair(),
    )
    return {experiment.name: experiment for experiment in found}


NAMES = ("table1", *experiments())


def find(name: str) -> Experiment:
    known = experiments()
    if name not in known:
        raise SettingError("NAME", name, nearest(name, NAMES))
    return known[name]
