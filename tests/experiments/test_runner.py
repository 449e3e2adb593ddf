"""From cells to configs, and from run folders back to cells. Rounds are those of the accounting's reference values."""

import json
import math
from dataclasses import replace

import pytest

from fedfdp.core.errors import SettingError
from fedfdp.experiments.methods import TUNED, tuned_lr
from fedfdp.experiments.runner import Planned, config_of, narrowed, open_config, read
from fedfdp.experiments.scales import SCALES, find_scale
from fedfdp.experiments.shapes import Column
from fedfdp.experiments.specs import experiments, find
from fedfdp.runs.config import load
from fedfdp.runs.store import Store, short_hash

PRIVATE_TABLES = ("table3", "table5", "table6", "table7")
SMALL, SMOKE, FULL = (SCALES[name] for name in ("small", "smoke", "paper"))


def planned(name: str, row: str, label: str, scale=SMALL, seed: int = 0) -> Planned:
    experiment = find(name)
    (r,) = (r for r in experiment.rows if r.key == row)
    (c,) = (c for c in experiment.columns if c.label == label)
    return config_of(experiment, r, c, scale, seed)


def settings(name: str, row: str, label: str, scale=SMALL):
    """The same before the rounds are solved, which takes seconds."""
    experiment = find(name)
    (r,) = (r for r in experiment.rows if r.key == row)
    (c,) = (c for c in experiment.columns if c.label == label)
    return open_config(experiment, r, c, scale, 0)[0]


def test_rounds_are_what_each_methods_own_releases_leave_of_the_same_epsilon():
    """σ = 2, q = 0.05, δ = 1e-5, ε = 3.52: 763 rounds with a loss beside the gradient, more without."""
    ours, average = (planned("table3", row, "MNIST", FULL).config for row in ("fedfdp", "fedavg"))
    assert ours.rounds == 763
    assert average.rounds == 914
    for config in (ours, average):
        assert (config.privacy.epsilon, config.privacy.sigma, config.privacy.q) == (3.52, 2.0, 0.05)
        assert (config.data.fraction, config.data.clients, config.data.beta) == (1.0, 10, 0.1)
        assert config.server.average == 0.95


def test_at_laptop_every_method_has_the_features_model_and_rounds_of_the_preset():
    for row in ("fedavg", "qffl", "fedfdp"):
        config = settings("table3", row, "CIFAR10", SCALES["laptop"])
        assert (config.features.name, config.model.name, config.model.arguments) == (
            "scattering",
            "linear",
            {"zero": True},
        )
        assert (config.privacy.epsilon, config.privacy.sigma, config.privacy.q) == (3.52, None, 0.1)
        assert (config.data.fraction, config.rounds) == (1.0, 200)
    ours = settings("table3", "fedfdp", "CIFAR10", SCALES["laptop"])
    assert ours.algorithm.server_lam == load("cifar10").algorithm.server_lam
    # where σ is the question, or the method's own, rounds are what ε leaves
    asked = settings("figure-sigma", "fedavg", "MNIST, σ = 1.5", SCALES["laptop"])
    assert (asked.privacy.sigma, asked.rounds) == (1.5, None)
    adaptive = settings("table3", "ali-dpfl", "MNIST", SCALES["laptop"])
    assert (adaptive.privacy.sigma, adaptive.privacy.accountant, adaptive.rounds) == (2.0, "rdp", None)
    budgets = settings("table6", "fedavg", "ε = 4", SCALES["laptop"])
    assert (budgets.privacy.epsilon, budgets.privacy.sigma, budgets.rounds) == (4.0, None, 200)
    curve = settings("figure-epsilon", "fedfdp", "CIFAR10, ε = 8", SCALES["laptop"])
    assert (curve.privacy.epsilon, curve.privacy.sigma, curve.rounds) == (8.0, None, 200)
    assert settings("figure-epsilon", "fedfdp", "CIFAR10, ε = 3.52", SCALES["laptop"]) == ours


def test_at_laptop_more_holders_take_smaller_steps():
    """Of 50 holders each has a fifth of the records: its noise is 5 times as large, that of the mean √5 times."""
    for row in ("fedavg", "fedfdp"):
        ten, fifty = (settings("table5", row, f"{n} clients", SCALES["laptop"]) for n in (10, 50))
        assert fifty.algorithm.lr == pytest.approx(ten.algorithm.lr / math.sqrt(5))
        plain = [settings("table4", "fedavg", f"{n} clients", SCALES["laptop"]) for n in (10, 50)]
        assert plain[0].algorithm.lr == plain[1].algorithm.lr
    small = [settings("table5", "fedavg", f"{n} clients") for n in (10, 50)]
    assert small[0].algorithm.lr == small[1].algorithm.lr


def test_without_privacy_a_laptop_run_takes_smaller_and_smaller_steps():
    plain = settings("table2", "fedavg", "MNIST", SCALES["laptop"])
    assert (plain.rounds, plain.algorithm.lr_decay, plain.features.name) == (100, 0.97, "scattering")
    assert settings("table2", "fedavg", "MNIST").algorithm.lr_decay == 1.0


def test_where_a_scale_has_fewer_rounds_the_noise_is_the_least_that_epsilon_allows():
    from fedfdp.privacy.accounting import epsilon
    from fedfdp.privacy.accounting.events import repeat

    config = planned("table3", "ali-dpfl", "MNIST").config
    assert config.rounds == 300
    assert config.data.fraction == 0.2
    for change, affordable in ((1.0, True), (0.999, False)):
        privacy = replace(config.privacy, sigma=config.privacy.sigma * change)
        spent = epsilon(repeat(config.algorithm.events(None, privacy), 300), 1e-5, accountant="rdp")
        assert (spent <= 3.52) is affordable
    kept = planned("table7", "fedavg", "90 %").config
    assert (kept.privacy.sigma, kept.rounds) == (2.0, 914)
    cut = planned("table3", "fedfdp", "MNIST", SMOKE).config
    assert (cut.privacy.sigma, cut.rounds) == (2.0, 8)


def test_full_is_the_papers_setting():
    config = planned("table2", "fedfair", "CIFAR10", FULL).config
    assert (config.model.name, config.data.fraction, config.rounds, config.privacy) == ("paper-cnn", 1.0, 100, None)
    assert (config.algorithm.local_epochs, config.algorithm.batch_size, config.algorithm.lam) == (1, 64, 0.1)
    assert config.server.average == 0.0
    assert planned("table3", "fedfdp", "MNIST", FULL).config.rounds == 763


def test_fedprox_and_scaffold_are_fedavgs_runs_with_one_private_step_only():
    same = [short_hash(planned("table3", row, "MNIST").config) for row in ("fedavg", "scaffold", "fedprox")]
    assert len(set(same)) == 1
    differ = [short_hash(planned("table2", row, "MNIST").config) for row in ("fedavg", "scaffold", "fedprox")]
    assert len(set(differ)) == 3


def test_tables_share_the_runs_of_equal_settings():
    assert short_hash(planned("table3", "qffl", "MNIST").config) == short_hash(
        planned("table5", "qffl", "MNIST Dir(0.1)").config
    )


def test_settings_of_columns_and_curves():
    four = settings("table6", "fedavg", "ε = 4")
    assert (four.privacy.epsilon, four.privacy.sigma, four.data.source) == (4.0, 1.65, "fashion-mnist")
    assert settings("table5", "fedavg", "50 clients").data.clients == 50
    assert settings("table7", "fedavg", "90 %", FULL).privacy.epsilon == 6.0
    assert settings("table7", "fedavg", "90 %", SMALL).privacy.epsilon == 3.52
    clip = settings("figure-clip", "scaled", "MNIST, C = 5")
    fixed = settings("figure-clip", "fixed", "MNIST, C = 5")
    assert clip.privacy.clip == fixed.privacy.clip == 5.0
    assert clip.algorithm.lr * 5.0 == pytest.approx(fixed.algorithm.lr * 0.1)
    lam = settings("figure-lambda", "bounded", "MNIST, λ = 20").algorithm
    assert (lam.lam, lam.server_lam, lam.coefficients) == (20.0, 0.0, "bounded")
    sigma = settings("figure-sigma", "fedfdp", "FashionMNIST, σ = 3")
    assert (sigma.privacy.sigma, sigma.privacy.epsilon) == (3.0, 2.0)
    assert planned("figure-tradeoff", "fedfdp", "MNIST, σ = 2").config.rounds == 120
    third = planned("tune-private", "fedfdp", "MNIST, η = 8", seed=100)
    assert (third.config.rounds, third.config.algorithm.lr, third.step.lr) == (150, 8.0, 8.0)


def test_every_cell_has_a_config_and_only_what_computes_the_same_shares_one():
    for experiment in experiments().values():
        for column in experiment.columns:
            hashes = {open_config(experiment, row, column, SMOKE, 0)[0].fingerprint() for row in experiment.rows}
            shared = 2 if experiment.name in PRIVATE_TABLES else 0  # SCAFFOLD and FedProx
            if (experiment.name, column.x) in (("figure-lambda", 0.0), ("figure-clip", 0.1)):
                shared = 1  # λ = 0 and λ_s = 0 are the same; so are η and η·C where C is the usual one
            assert len(hashes) == len(experiment.rows) - shared


def test_step_sizes_are_tuned_or_borrowed_from_a_near_data_set(tmp_path, monkeypatch):
    from fedfdp.experiments import methods

    file = tmp_path / "tuned.toml"
    file.write_text("[private.mnist]\nfedavg = 8.0\nqffl = 4.0\n[private.fashion-mnist]\nfedavg = 32.0\n")
    monkeypatch.setattr(methods, "TUNED", file)
    assert (tuned_lr("fedavg", "mnist", private=True).lr, tuned_lr("fedavg", "cifar10", private=True).lr) == (8.0, 32.0)
    assert tuned_lr("qffl", "cifar10", private=True).tuned_on == "mnist"
    assert TUNED.is_file()


def test_holders_by_nature_are_as_their_preset_says_at_every_scale_but_smoke():
    for scale in ("small", "brief", "laptop", "paper"):
        hospitals = settings("fair", "term", "17 hospitals of Arizona", SCALES[scale])
        assert (hospitals.data.source, hospitals.data.partition, hospitals.data.column) == (
            "arizona-hospitals",
            "column",
            "hospital",
        )
        assert (hospitals.model.name, hospitals.rounds, hospitals.privacy.q, hospitals.data.fraction) == (
            "linear",
            100,
            0.2,
            1.0,
        )
        assert (hospitals.privacy.epsilon, hospitals.privacy.delta, hospitals.privacy.sigma) == (3.52, 1e-5, None)
    assert settings("fair", "term", "17 hospitals of Arizona", SMOKE).data.source == "digits"
    domains = settings("fair", "mrmtl", "6 domains of digits (MLP, 30 % of the records)", SCALES["brief"])
    assert (domains.data.column, domains.data.fraction, domains.model.name) == ("domain", 0.3, "mlp")


def test_a_methods_own_setting_is_tuned_beside_its_step_size(tmp_path, monkeypatch):
    from fedfdp.experiments import methods

    file = tmp_path / "tuned.toml"
    file.write_text("[private.mnist]\nfedavg = 8.0\nterm = { lr = 2.0, t = 5.0 }\n[private-brief.mnist]\nfedavg = 64.0")
    monkeypatch.setattr(methods, "TUNED", file)
    found = tuned_lr("term", "mnist", private=True)
    assert (found.lr, found.own, found.tuned_for) == (2.0, {"t": 5.0}, "term")
    lent = tuned_lr("term", "mnist", private=True, scale="brief")  # a scale's own section counts alone for its data set
    assert (lent.lr, lent.own, lent.tuned_for) == (64.0, {}, "fedavg")
    config = settings("fair", "term", "MNIST")
    assert (config.algorithm.lr, config.algorithm.t) == (2.0, 5.0)
    tried = narrowed(find("tune-fair"), datasets=["nyc-flights"], methods=["term", "local"])
    assert [(row.key, row.at(8.0)) for row in tried.rows] == [
        ("term-0.5", {"algorithm.lr": 8.0, "algorithm.t": 0.5}),
        ("term-2", {"algorithm.lr": 8.0, "algorithm.t": 2.0}),
        ("term-5", {"algorithm.lr": 8.0, "algorithm.t": 5.0}),
        ("local", {"algorithm.lr": 8.0}),
    ]


def test_a_sweep_over_some_of_its_values_has_their_columns_alone():
    some = narrowed(find("figure-clip"), datasets=["mnist"], at=["0.1", "5"])
    assert [column.label for column in some.columns] == ["MNIST, C = 0.1", "MNIST, C = 5"]


def test_unknown_names_are_one_clear_line():
    with pytest.raises(SettingError, match="did you mean 'table3'"):
        find("tabel3")
    with pytest.raises(SettingError, match="'fedavg'"):
        narrowed(find("table3"), methods=["fedavgg"])
    with pytest.raises(SettingError, match="known: fashion-mnist, mnist"):
        narrowed(find("figure-clip"), datasets=["cifar10"])
    with pytest.raises(SettingError, match=r"--at = .7.: .*known: 0\.01, 0\.1, 1, 10, 5"):
        narrowed(find("figure-clip"), at=["0.1", "7"])
    with pytest.raises(SettingError, match=r"--at = .7.: table3 has no values to choose from"):
        narrowed(find("table3"), at=["7"])
    with pytest.raises(SettingError, match="did you mean 'small'"):
        find_scale("smal")


def test_a_target_is_read_where_it_is_first_reached(tmp_path):
    store, cell = Store(tmp_path), planned("table7", "fedavg", "85 %")
    path = store.path(cell.config)
    path.mkdir()
    (path / "summary.json").write_text(json.dumps({"rounds": 914, "seconds": 9.0, "accuracy": 0.9, "psi": 0.1}))
    steps = [(10, 0.70, 3.0, 0.4), (20, 0.86, 2.0, 0.6), (30, 0.84, 1.0, 0.8), (40, 0.90, 0.5, 1.0)]
    lines = [json.dumps({"round": r, "accuracy": a, "psi": p, "epsilon": e}) for r, a, p, e in steps]
    (path / "metrics.jsonl").write_text("\n".join(lines))
    reached = read(store, cell)
    assert (reached.rounds, reached.epsilon, reached.psi, reached.accuracy) == (20, 0.6, 2.0, 0.86)
    never = Planned(cell.row, Column("95 %", "mnist", target=0.95), cell.config, cell.step)
    missed = read(store, never)
    assert (missed.epsilon, missed.psi, missed.rounds) == (None, None, 914)


def test_the_rows_of_the_adaptive_experiment_differ_in_their_rule_and_nothing_else():
    found = {key: planned("adaptive", key, "MNIST").config for key in ("fixed-0", "fixed-2.5", "fixed-20", "adaptive")}
    rules = {key: (config.algorithm.server_rule, config.algorithm.server_lam) for key, config in found.items()}
    assert rules == {
        "fixed-0": ("fixed", 0.0),
        "fixed-2.5": ("fixed", 2.5),
        "fixed-20": ("fixed", 20.0),
        "adaptive": ("adaptive", 5.0),
    }
    same = {replace(config.algorithm, server_rule="fixed", server_lam=0.0) for config in found.values()}
    assert len(same) == 1
    assert len({config.privacy.sigma for config in found.values()}) == 1
