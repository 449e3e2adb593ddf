"""Measures of the answers against definitions worked out by hand and against scikit-learn's."""

import math

import numpy as np
import pytest
from sklearn import metrics as theirs

from fedfdp.fairness.metrics import Answers, ClientResults, by_class, measures
from fedfdp.fairness.metrics.answers import MOST_CONFUSED, MOST_NAMED, auc
from fedfdp.fairness.metrics.intervals import wilson
from fedfdp.fairness.metrics.verdict import verdict

NAMES = ("no", "yes", "perhaps")


def classes(seed=0, records=400, names=NAMES):
    rng = np.random.default_rng(seed)
    targets = rng.choice(len(names), size=records, p=[0.7, 0.2, 0.1])
    scores = rng.normal(size=(records, len(names))) + 1.5 * np.eye(len(names))[targets]
    shown = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    return Answers(shown, targets, np.arange(records) % 2, np.array(0.0), names)


def results(answers, records=2):
    each = np.full(2, len(answers) / 2)
    return ClientResults(
        np.ones(2), np.full(2, 0.75), each.astype(np.int64), np.full(2, 0.5), answers=answers if records else None
    )


def test_classes_as_scikit_learn_measures_them():
    a = classes()
    found, guess = measures(results(a)), a.outputs.argmax(1)
    assert found["balanced_accuracy"] == pytest.approx(theirs.balanced_accuracy_score(a.targets, guess))
    assert found["auc"] == pytest.approx(theirs.roc_auc_score(a.targets, a.outputs, multi_class="ovr"))
    assert found["baseline_accuracy"] == pytest.approx((a.targets == 0).mean())
    assert (a.confusion == theirs.confusion_matrix(a.targets, guess)).all()
    assert a.recall == pytest.approx(theirs.recall_score(a.targets, guess, average=None))
    assert a.precision == pytest.approx(theirs.precision_score(a.targets, guess, average=None))
    assert "rmse" not in found


def test_two_classes_have_the_usual_auc_and_ties_count_half():
    rng = np.random.default_rng(3)
    scores, positive = rng.integers(0, 5, size=200) / 5, rng.random(200) < 0.3
    assert auc(scores, positive) == pytest.approx(theirs.roc_auc_score(positive, scores))
    assert auc(np.array([0.1, 0.1]), np.array([True, False])) == 0.5
    assert math.isnan(auc(scores, np.ones(200, dtype=bool)))
    assert math.isnan(auc(np.array([0.1, np.nan]), np.array([True, False])))


def test_a_model_that_always_says_the_same_is_seen_through():
    targets = np.array([0] * 91 + [1] * 9)
    always = Answers(
        np.tile([0.9, 0.1], (100, 1)), targets, np.zeros(100, dtype=np.int64), np.array(0.0), ("no", "yes")
    )
    found = measures(results(always))
    assert found["baseline_accuracy"] == 0.91
    assert found["balanced_accuracy"] == 0.5
    assert found["auc"] == 0.5
    assert by_class(always) == {
        "names": ["no", "yes"],
        "constant": "no",
        "records": [91, 9],
        "recall": [1.0, 0.0],
        "precision": [0.91, None],
        "confusion": [[91, 0], [9, 0]],
    }


def test_a_class_that_does_not_occur_has_no_recall_and_does_not_count():
    a = Answers(np.eye(3)[[0, 1, 1]], np.array([0, 1, 0]), np.zeros(3, dtype=np.int64), np.array(0.0), NAMES)
    assert by_class(a)["recall"] == [0.5, 1.0, None]
    assert measures(results(a))["balanced_accuracy"] == 0.75


def test_many_classes_are_not_kept_one_by_one():
    def made(count):
        names = tuple(map(str, range(count)))
        return Answers(np.eye(count), np.arange(count), np.zeros(count, dtype=np.int64), np.array(0.0), names)

    assert by_class(made(MOST_CONFUSED))["confusion"] is not None
    assert by_class(made(MOST_CONFUSED + 1))["confusion"] is None
    assert by_class(made(MOST_NAMED + 1)) is None
    assert by_class(None) is None


def test_numbers_as_scikit_learn_measures_them():
    rng = np.random.default_rng(5)
    targets = rng.uniform(20, 90, size=(60, 1))
    answers = targets + rng.normal(scale=4, size=(60, 1))
    a = Answers(answers, targets, np.repeat([0, 1], [20, 40]), np.array([55.0]))
    r = ClientResults(np.ones(2), np.full(2, np.nan), np.array([20, 40]), np.full(2, 0.5), answers=a)
    found = measures(r)
    assert found["rmse"] == pytest.approx(theirs.root_mean_squared_error(targets, answers))
    assert found["mae"] == pytest.approx(theirs.mean_absolute_error(targets, answers))
    assert found["r2"] == pytest.approx(theirs.r2_score(targets, answers))
    assert found["baseline_rmse"] == pytest.approx(np.sqrt(((targets - 55) ** 2).mean()))
    assert r.by_client()["rmse"] == pytest.approx(
        [theirs.root_mean_squared_error(targets[:20], answers[:20]),
         theirs.root_mean_squared_error(targets[20:], answers[20:])]
    )  # fmt: skip
    assert "auc" not in found


def test_wilson_by_hand_and_where_there_is_nothing():
    # 15 of 20: (0.75 + z²/40 ± z·√(0.75·0.25/20 + z²/1600))/(1 + z²/20), z² = 3.8415
    low, high = wilson(0.75, 20)
    assert (low, high) == pytest.approx((0.5313, 0.8881), abs=1e-4)
    low, high = wilson([0.0, 1.0, np.nan], [10, 10, 0])
    assert (low[0], high[1]) == pytest.approx((0.0, 1.0))
    assert high[0] == pytest.approx(3.8415 / 13.8415, abs=1e-4)
    assert np.isnan([low[2], high[2]]).all()


def test_the_interval_covers_as_often_as_it_says():
    rng = np.random.default_rng(0)
    low, high = wilson(rng.binomial(19, 0.8, size=20_000) / 19, 19)
    assert 0.93 < ((low <= 0.8) & (high >= 0.8)).mean() < 0.98


def test_every_clients_interval_is_kept_and_the_whole_has_one():
    r = ClientResults(np.ones(3), np.array([0.5, 0.9, np.nan]), np.array([4, 400, 0]), np.ones(3) / 3)
    found, kept = measures(r), r.by_client()
    ends = [float(end) for end in wilson((2 + 360) / 404, 404)]
    assert [found["accuracy_low"], found["accuracy_high"]] == pytest.approx(ends)
    ends = [float(end) for end in wilson(0.5, 4)]
    assert [found["worst_accuracy_low"], found["worst_accuracy_high"]] == pytest.approx(ends)
    assert kept["accuracy_low"][:2] == pytest.approx(wilson([0.5, 0.9], [4, 400])[0])
    assert np.isnan(kept["accuracy_high"][2])


def said(**values):
    classes = {"constant": "no", "records": [91, 9]}
    return verdict(
        {"classes": classes, "accuracy_low": 0.88, "accuracy_high": 0.95, "baseline_accuracy": 0.91} | values
    )


def test_what_is_said_of_a_constant_model_of_few_records_and_of_a_good_one():
    assert said(accuracy=0.91) == [
        "the model is no better than always answering 'no', which gives 91.00%: look at balanced accuracy and AUC"
    ]
    assert said(accuracy=0.92) == [
        "100 test records do not show that the model is better than always answering 'no', which gives 91.00%"
    ]
    assert said(accuracy=0.97, accuracy_low=0.92, accuracy_high=0.99) == []
    (few,) = said(accuracy=0.95, accuracy_low=0.7, accuracy_high=0.99, baseline_accuracy=0.5)
    assert few == "few test records: the accuracy may be anything from 70% to 99% (95 % interval)"
    assert verdict({"rmse": 9.0, "baseline_rmse": 8.0}) == [
        "the model is no better than always answering the mean, which has an RMSE of 8"
    ]
    assert verdict({"rmse": 7.0, "baseline_rmse": 8.0}) == verdict({"accuracy": 0.5}) == []
