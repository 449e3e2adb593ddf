"""Groups of a declared column, worked out by hand: ten records, two clients, the favourable class is 1.

record   0 1 2 3 4 | 5 6 7 8 9      client 0 has the first five, client 1 the others
group    a a a b b | a b b b b
target   1 1 0 1 0 | 1 1 1 0 0
answer   1 0 1 1 0 | 1 0 1 0 0

Given the favourable class: a 3 of 4, b 2 of 6. Among records that are of it: a 2 of 3, b 2 of 3.
At client 0: a 2 of 3, b 1 of 2; of it: a 1 of 2, b 1 of 1. At client 1: a 1 of 1, b 1 of 4; of it: a 1 of 1, b 1 of 2.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from fedfdp.fairness.metrics import Answers, ClientResults, Groups, by_group, measures
from fedfdp.fairness.metrics.groups import gap

OF = np.array([0, 0, 0, 1, 1, 0, 1, 1, 1, 1])
TARGETS = np.array([1, 1, 0, 1, 0, 1, 1, 1, 0, 0])
SAID = np.array([1, 0, 1, 1, 0, 1, 0, 1, 0, 0])
OWNER = np.array([0] * 5 + [1] * 5)
ANSWERS = Answers(np.eye(2)[SAID], TARGETS, OWNER, np.array(1.0), ("no", "yes"), Groups("sex", ("a", "b"), OF, 1))
RESULTS = ClientResults(
    np.array([0.5, 0.5]), np.array([0.6, 0.8]), np.array([5, 5]), np.array([0.5, 0.5]), answers=ANSWERS
)


def test_demographic_parity_and_equal_opportunity_over_all_records():
    found = measures(RESULTS)
    assert found["parity_gap"] == pytest.approx(3 / 4 - 2 / 6)
    assert found["opportunity_gap"] == pytest.approx(0.0)


def test_they_are_measured_at_each_client_too():
    found = RESULTS.by_client()
    assert found["parity_gap"] == pytest.approx([2 / 3 - 1 / 2, 1 - 1 / 4])
    assert found["opportunity_gap"] == pytest.approx([1 - 1 / 2, 1 - 1 / 2])


def test_what_is_kept_of_each_group():
    assert by_group(ANSWERS) == {
        "column": "sex",
        "favourable": "yes",
        "names": ["a", "b"],
        "records": [4, 6],
        "favourable_records": [3, 3],
        "accuracy": [pytest.approx(2 / 4), pytest.approx(5 / 6)],
        "given": [pytest.approx(3 / 4), pytest.approx(2 / 6)],
        "recognised": [pytest.approx(2 / 3), pytest.approx(2 / 3)],
    }


def test_another_favourable_class():
    # given class 0: a 1 of 4, b 4 of 6; among the records of class 0: a 0 of 1, b 3 of 3
    assert ANSWERS.groups is not None
    other = replace(ANSWERS, groups=replace(ANSWERS.groups, favourable=0))
    found = measures(replace(RESULTS, answers=other))
    assert (found["parity_gap"], found["opportunity_gap"]) == pytest.approx((4 / 6 - 1 / 4, 1.0))


def test_a_group_without_records_is_left_out_and_one_alone_has_no_gap():
    assert gap(np.array([0.2, math.nan, 0.5])) == pytest.approx(0.3)
    assert math.isnan(gap(np.array([math.nan, 0.5])))
    alone = replace(ANSWERS, groups=Groups("sex", ("a", "b", "c"), np.full(10, 2), 1))
    assert by_group(alone)["given"] == [None, None, pytest.approx(0.5)]
    assert math.isnan(measures(replace(RESULTS, answers=alone))["parity_gap"])


def test_without_groups_there_is_nothing_of_them():
    plain = replace(RESULTS, answers=replace(ANSWERS, groups=None))
    assert by_group(plain.answers) is None
    assert not {"parity_gap", "opportunity_gap"} & (measures(plain).keys() | plain.by_client().keys())
