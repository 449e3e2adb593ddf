"""The declarations: names are unique, places and labels are as the terminal and the report show them."""

import dataclasses

import pytest

from fedfdp.fairness.metrics import METRICS, Metric, number, register, shown, told, values_task
from fedfdp.fairness.metrics.answers import OF_ANSWERS
from fedfdp.fairness.metrics.groups import GROUPS
from fedfdp.fairness.metrics.outputs import FUNCTIONS
from fedfdp.fairness.metrics.results import COMPUTED


def names(place, *tasks):
    return [metric.name for metric in shown(place, *tasks)]


def test_what_is_shown_where():
    of_tasks = ["perplexity", "iou"]  # shown only where a run has them
    assert names("line", "classification") == ["accuracy", *of_tasks, "worst_accuracy", "psi"]
    assert names("line", "regression") == ["loss", "rmse", "worst_loss", "psi"]
    spread, alone = ["psi", "psi_train"], ["alone_accuracy", "better_alone"]
    well = ["accuracy", *of_tasks, "baseline_accuracy", "balanced_accuracy", "auc"]
    groups = ["parity_gap", "opportunity_gap"]  # the same
    assert names("result", "classification") == [*well, *groups, "worst_accuracy", *spread, *alone]
    numbers = ["loss", "rmse", "baseline_rmse", "mae", "r2", "worst_loss", *spread]
    assert names("result", "regression") == [*numbers, "alone_rmse", "better_alone_rmse"]
    facts = ["epsilon", "rounds", "seconds"]
    assert names("column", "classification") == [
        "accuracy", "balanced_accuracy", "auc", "worst_accuracy", *spread, *facts,
    ]  # fmt: skip
    assert names("column", "classification", "regression") == [
        "accuracy", "loss", "balanced_accuracy", "auc", "rmse", "r2", "worst_accuracy", "worst_loss", *spread, *facts,
    ]  # fmt: skip
    assert names("curve", "classification") == [
        "accuracy", "baseline_accuracy", "balanced_accuracy", "worst_accuracy", "psi", "epsilon",
    ]  # fmt: skip


def test_every_declaration_is_whole():
    assert set(COMPUTED) | set(FUNCTIONS) | set(OF_ANSWERS) <= set(METRICS)
    for name, metric in METRICS.items():
        assert metric.name == name
        assert metric.title
        assert metric.about
        assert metric.stands_for is None or metric.stands_for in METRICS
        assert metric.needs in (None, GROUPS) or METRICS[metric.needs].by_client
        assert metric.interval is None or set(metric.interval) <= set(METRICS)


def test_names_are_not_given_twice():
    for taken in ("accuracy", "clients", "round", "classes", "groups"):
        with pytest.raises(ValueError, match=f"metric '{taken}' is declared already"):
            register(Metric(taken, "again", "number", "a second one"))


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("accuracy", 0.12345, "12.35%"),
        ("accuracy", None, "–"),
        ("loss", 0.5, "0.5000"),
        ("psi", 0.0012345, "1.23e-03"),
        ("psi", 12345.0, "1.23e+04"),
        ("epsilon", 1.23456, "1.235"),
        ("epsilon", None, "none"),
        ("delta", 1e-5, "1e-05"),
        ("rounds", 7, "7"),
        ("seconds", 2.6, "3"),
        ("accountant", "pld", "pld"),
    ],
)
def test_values_as_they_are_printed(name, value, text):
    assert METRICS[name].text(value) == text


def test_texts_name_what_psi_is_the_spread_of():
    assert told("Ψ{of} (test)", "loss") == "Ψ (test)"
    assert told("Ψ{of} (test)", "accuracy") == "Ψ of accuracy (test)"
    assert told("variance of the clients' {metric}", "loss") == "variance of the clients' losses"
    assert told("lowest {metric}", "pkg:f1") == "lowest pkg:f1"
    assert number(None) == "–"


def test_the_task_of_values():
    assert values_task({"accuracy": 0.5}) == "classification"
    assert values_task({"accuracy": None, "loss": 1.0}) == values_task({}) == "regression"


def test_a_declaration_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        METRICS["accuracy"].title = "other"
