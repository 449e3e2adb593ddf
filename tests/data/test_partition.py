"""Every record once, reproducible, quick; and each partition's own shape, checked from its definition."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfdp.core.errors import SettingError
from fedfdp.data import partition


def rng(seed=0):
    return np.random.default_rng(seed)


def labels(records, classes=10, seed=0):
    return rng(seed).integers(0, classes, records)


def each_once(parts, records):
    return np.array_equal(np.sort(np.concatenate(parts)), np.arange(records))


@settings(max_examples=30, deadline=None)
@given(
    records=st.integers(1, 400),
    share=st.floats(0, 1),
    classes=st.integers(1, 12),
    beta=st.sampled_from([1e-3, 0.05, 0.1, 1.0, 1e3]),
    seed=st.integers(0, 2**32),
)
def test_dirichlet_gives_every_record_to_one_client_and_each_its_least(records, share, classes, beta, seed):
    clients = max(1, int(share * records))
    y = labels(records, classes, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition, "_MOST_REDRAWS", 30)  # so that many examples come to the repair, and soon
        parts = partition.dirichlet(y, clients, beta, rng(seed))
    assert len(parts) == clients
    assert each_once(parts, records)
    assert min(map(len, parts)) >= min(10, max(1, records // (2 * clients)))


@settings(max_examples=30, deadline=None)
@given(records=st.integers(1, 400), share=st.floats(0, 1), pieces=st.integers(1, 4), seed=st.integers(0, 2**32))
def test_iid_and_shards_give_every_record_to_one_client(records, share, pieces, seed):
    clients = max(1, int(share * records / pieces))
    equal = partition.iid(records, clients, rng(seed))
    assert each_once(equal, records)
    assert max(map(len, equal)) - min(map(len, equal)) <= 1
    if pieces * clients <= records:
        dealt = partition.shards(labels(records, 5, seed), clients, pieces, rng(seed))
        assert len(dealt) == clients
        assert each_once(dealt, records)
        # A shard's size is the floor or the ceiling of an equal piece.
        assert all(pieces * (records // (clients * pieces)) <= len(p) for p in dealt)


class FixedShares:
    """A generator whose Dirichlet draws are given and whose shuffles do nothing."""

    def __init__(self, *draws):
        self.draws = [np.array(draw) for draw in draws]

    def dirichlet(self, alpha):
        assert np.all(alpha == 0.1)
        return self.draws.pop(0)

    def permutation(self, values):
        return values


def test_dirichlet_by_hand_with_the_cap():
    # 40 records, 2 clients, so 20 is an equal share. Class 0 (24 records) at 5/6, 1/6: 20 and 4. Client 0 is full, so
    # of class 1 (16 records, shares 3/4, 1/4) it gets none although its share is larger.
    y = np.repeat([0, 1], [24, 16])
    parts = partition.dirichlet(y, 2, 0.1, FixedShares([5 / 6, 1 / 6], [0.75, 0.25]), min_records=10)
    assert [np.bincount(y[p], minlength=2).tolist() for p in parts] == [[20, 0], [4, 16]]


def test_dirichlet_redraws_until_each_has_the_least():
    # The first draw leaves client 1 with 4 records of 40; the second gives 24·¼ + 16·½ = 14.
    y = np.repeat([0, 1], [24, 16])
    draws = FixedShares([0.75, 0.25], [1.0, 0.0], [0.75, 0.25], [0.5, 0.5])
    parts = partition.dirichlet(y, 2, 0.1, draws, min_records=10)
    assert [np.bincount(y[p], minlength=2).tolist() for p in parts] == [[18, 8], [6, 8]]
    assert draws.draws == []


def test_dirichlet_shares_follow_beta():
    # Var of one share under Dirichlet(β, …, β) over N clients is (N−1)/(N²(Nβ+1)). One class: nobody is capped.
    clients, beta, records = 5, 2.0, 10_000
    y = np.zeros(records, int)
    shares = [len(partition.dirichlet(y, clients, beta, rng(s), min_records=0)[2]) / records for s in range(400)]
    wanted = (clients - 1) / (clients**2 * (clients * beta + 1))
    # The standard error of a variance over 400 draws is about 7 %.
    assert np.mean(shares) == pytest.approx(1 / clients, abs=4 * np.sqrt(wanted / 400))
    assert np.var(shares) == pytest.approx(wanted, rel=0.3)


def test_repair_moves_from_the_largest_client_and_its_commonest_class():
    counts = np.array([[6, 3], [0, 5], [0, 1]])
    partition._repair(counts, 3)
    # Client 2 lacks two: client 0 holds 9 and gives of class 0, then holds 8 and gives again.
    assert counts.tolist() == [[4, 3], [0, 5], [2, 1]]


def test_same_seed_same_partition_and_another_seed_another():
    y = labels(2000)
    for deal in (
        lambda g: partition.dirichlet(y, 10, 0.1, g),
        lambda g: partition.shards(y, 10, 2, g),
        lambda g: partition.iid(2000, 10, g),
    ):
        first, again, other = deal(rng(1)), deal(rng(1)), deal(rng(2))
        assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
        assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_shards_hold_few_classes():
    # 10 balanced classes, 20 shards of half a class each: two shards touch at most two classes.
    y = np.tile(np.arange(10), 100)
    parts = partition.shards(y, 10, 2, rng())
    assert {len(p) for p in parts} == {100}
    assert max(len(np.unique(y[p])) for p in parts) <= 2


def test_by_column_names_clients_by_value():
    names, parts = partition.by_column(np.array(["b", "a", "b", "c"]))
    assert names == ["a", "b", "c"]
    assert [p.tolist() for p in parts] == [[1], [0, 2], [3]]


@pytest.mark.parametrize("clients", [2, 100, 10_000])
def test_seventy_thousand_records_take_about_a_second(clients):
    y = labels(70_000)
    start = time.process_time()
    parts = partition.dirichlet(y, clients, 0.1, rng())
    assert time.process_time() - start < 2
    assert each_once(parts, 70_000)
    assert min(map(len, parts)) >= min(10, 35_000 // clients)


def test_errors_name_the_setting():
    y = labels(20)
    with pytest.raises(SettingError, match="clients = 21: there are 20 records"):
        partition.dirichlet(y, 21, 0.1, rng())
    with pytest.raises(SettingError, match="clients = 0"):
        partition.iid(20, 0, rng())
    for beta in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(SettingError, match=r"beta = .*positive"):
            partition.dirichlet(y, 2, beta, rng())
    with pytest.raises(SettingError, match="shards_per_client = 3: must be 1 to 2 here"):
        partition.shards(y, 10, 3, rng())
