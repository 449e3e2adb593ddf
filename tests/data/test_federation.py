"""Clients over one pool: splits, shares, fingerprints, and one clear error for each kind of bad record."""

import time

import numpy as np
import pytest
import torch

from fedfdp.core.errors import DataError, SettingError
from fedfdp.data import Dataset, Federation, load


def dataset(records=200, classes=4, **more):
    x = torch.arange(records, dtype=torch.float32)[:, None]
    return Dataset(name="made", x=x, y=torch.arange(records) % classes, classes=classes, **more)


def all_indices(federation):
    return torch.cat([torch.cat([c.train.index, c.test.index]) for c in federation.clients])


def test_a_client_is_made_when_it_is_asked_for_and_then_kept():
    federation = Federation.partition(dataset(), clients=7, how="iid")
    clients = federation.clients
    assert clients[2] is clients[2]
    assert clients[-1].name == "client-6"
    assert [c.name for c in clients[1:3]] == ["client-1", "client-2"]
    with pytest.raises(IndexError):
        clients[7]
    by_hand = [[int((federation.y[c.train.index] == label).sum()) for label in range(4)] for c in clients]
    assert federation.class_counts().tolist() == by_hand
    assert [len(rows) for rows in federation.held("test")] == [len(c.test) for c in clients]


def test_lists_of_numbers_are_records_as_arrays_are():
    x, y = [[1.0, 2.0], [3.0, 4.0]], [0, 1]
    for given in (x, [[[1.0], [2.0]], [[3.0], [4.0]]], [1.0, 2.0]):
        found = Federation.from_clients({"a": (given, y, given, y)}).clients[0].train.take()[0]
        assert found.flatten().tolist() == torch.tensor(given).flatten().tolist()


def test_a_pool_is_dealt_out_by_positions_that_come_one_at_a_time():
    pool = dataset(6)
    parts = ((torch.tensor([i, 3], dtype=torch.int32), torch.tensor([i + 3])[:i]) for i in range(2))
    federation = Federation.over(pool.x, pool.y, 4, "made", ["a", "b"], parts)
    assert [c.train.index.tolist() for c in federation.clients] == [[0, 3], [1, 3]]
    assert [c.test.index.tolist() for c in federation.clients] == [[], [4]]
    assert federation.x is pool.x
    with pytest.raises(ValueError, match="shorter"):
        Federation.over(pool.x, pool.y, 4, "made", ["a", "b"], [(torch.tensor([0]), torch.tensor([1]))])


@pytest.mark.parametrize("how", ["dirichlet", "iid", "shards"])
def test_every_record_is_with_one_client_in_one_part(how):
    federation = Federation.partition(dataset(), clients=7, how=how)
    assert len(federation) == 7
    assert all_indices(federation).sort().values.tolist() == list(range(200))
    assert federation.input_shape == (1,)


def test_three_quarters_train_and_one_quarter_test():
    # 200 records, 8 clients: 25 each, of which ⌈25/4⌉ = 7 are for the test.
    federation = Federation.partition(dataset(), clients=8, how="iid")
    assert {(len(c.train), len(c.test)) for c in federation.clients} == {(18, 7)}
    whole = Federation.partition(dataset(), clients=8, how="iid", test_fraction=0.0)
    assert {(len(c.train), len(c.test)) for c in whole.clients} == {(25, 0)}


def test_the_split_is_random():
    federation = Federation.partition(dataset(), clients=1, how="iid")
    test = federation.clients[0].test.index
    assert test.tolist() not in (list(range(50)), list(range(150, 200)))


def test_a_single_record_stays_for_training():
    federation = Federation.partition(dataset(records=5), clients=5, how="iid")
    assert {(len(c.train), len(c.test)) for c in federation.clients} == {(1, 0)}
    x, y = federation.clients[0].test.take()
    assert (x.shape, y.shape) == ((0, 1), (0,))


def test_shares_are_training_sizes_over_their_sum():
    federation = Federation.from_clients(
        {
            "a": (torch.zeros(3, 2), torch.tensor([0, 1, 1]), torch.zeros(9, 2), torch.zeros(9, dtype=torch.int64)),
            "b": (torch.zeros(1, 2), torch.tensor([0]), torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64)),
        }
    )
    assert federation.shares.dtype == torch.float64
    assert federation.shares.tolist() == [0.75, 0.25]
    assert federation.classes == 2


def test_shards_share_the_pool_and_take_by_position():
    federation = Federation.partition(dataset(), clients=4)
    shard = federation.clients[2].train
    assert shard.x.data_ptr() == federation.x.data_ptr()
    x, y = shard.take(torch.tensor([1, 0]))
    assert x.flatten().tolist() == [float(shard.index[1]), float(shard.index[0])]
    assert y.tolist() == [int(shard.index[1]) % 4, int(shard.index[0]) % 4]
    assert len(shard.take()[1]) == len(shard)


def test_class_counts_add_up():
    federation = Federation.partition(dataset(), clients=3)
    both = federation.class_counts("train") + federation.class_counts("test")
    assert both.sum(axis=0).tolist() == [50, 50, 50, 50]
    assert both.sum(axis=1).tolist() == [len(c.train) + len(c.test) for c in federation.clients]


def test_the_seed_decides_everything():
    def make(seed):
        return Federation.partition(dataset(), clients=5, fraction=0.5, seed=seed)

    assert make(3).fingerprint() == make(3).fingerprint()
    assert make(3).fingerprint() != make(4).fingerprint()
    assert len(make(3).x) == 100
    assert not torch.equal(make(3).x, make(4).x)


def test_the_fingerprint_tells_content_assignment_and_names_apart():
    x, y = np.arange(8.0).reshape(4, 2), np.array([0, 1, 0, 1])

    def of(a, b, **clients_named):
        return Federation.from_clients({"a": a, "b": b, **clients_named}, test_fraction=0.0).fingerprint()

    first = of((x[:2], y[:2]), (x[2:], y[2:]))
    assert first == of((x[:2].copy(), y[:2]), (x[2:], y[2:]))
    assert len(first) == 64
    changed = x.copy()
    changed[3, 1] += 1
    others = {
        of((changed[:2], y[:2]), (changed[2:], y[2:])),
        of((x[:1], y[:1]), (x[1:], y[1:])),
        of((x[:2], 1 - y[:2]), (x[2:], y[2:])),
        Federation.from_clients({"a": (x[:2], y[:2]), "c": (x[2:], y[2:])}, test_fraction=0.0).fingerprint(),
        of((x.reshape(4, 1, 2)[:2], y[:2]), (x.reshape(4, 1, 2)[2:], y[2:])),
    }
    assert len(others - {first}) == 5


def test_by_column_and_by_label():
    data = dataset(records=6, classes=2, columns={"site": np.array(["y", "x", "y", "x", "z", "z"])})
    federation = Federation.partition(data, how="column", column="site", test_fraction=0.0)
    assert [(c.name, c.train.index.tolist()) for c in federation.clients] == [
        ("x", [1, 3]),
        ("y", [0, 2]),
        ("z", [4, 5]),
    ]
    by_label = Federation.partition(data, how="column", column="label", clients=2, test_fraction=0.0)
    assert [c.train.index.tolist() for c in by_label.clients] == [[0, 2, 4], [1, 3, 5]]
    half = Federation.partition(data, how="column", column="site", fraction=0.5)
    assert len(half.x) == 3
    with pytest.raises(SettingError, match="column = 'sight': made has no such column; did you mean 'site'"):
        Federation.partition(data, how="column", column="sight")
    with pytest.raises(SettingError, match="clients = 5: column 'site' has 3 values"):
        Federation.partition(data, how="column", column="site", clients=5)


def test_regression_keeps_floats_and_has_no_classes():
    federation = Federation.from_clients({"a": (np.ones((4, 2)), np.array([0.5, 1.5, 2.5, 3.5]))})
    assert federation.classes is None
    assert federation.y.dtype == torch.float32
    with pytest.raises(DataError, match="no classes to count"):
        federation.class_counts()
    pool = Dataset(name="made", x=torch.zeros(9, 1), y=torch.rand(9), classes=None)
    with pytest.raises(SettingError, match="made has no classes; use iid, shards or column"):
        Federation.partition(pool, clients=2)
    assert len(Federation.partition(pool, clients=2, how="shards", shards_per_client=1)) == 2


def test_ten_thousand_clients_in_about_a_second():
    pool = Dataset(name="made", x=torch.zeros(70_000, 1), y=torch.arange(70_000) % 10, classes=10)
    start = time.process_time()
    federation = Federation.partition(pool, clients=10_000)
    assert time.process_time() - start < 3
    assert min(len(c.train) for c in federation.clients) >= 1


X, Y = torch.zeros(4, 2), torch.tensor([0, 1, 0, 1])
NAN = X.clone().index_fill(0, torch.tensor([2]), float("nan"))
INF = X.clone().index_fill(0, torch.tensor([3]), float("inf"))


@pytest.mark.parametrize(
    ("clients", "more", "message"),
    [
        ({}, {}, "no clients"),
        ({"b": (X[:0], Y[:0])}, {}, "client 'b' has no training records"),
        ({"b": (X, Y[:3])}, {}, "client 'b': 4 records in x, 3 in y"),
        ({"b": (NAN, Y)}, {}, "client 'b': row 2 of x holds NaN or infinity"),
        ({"b": (INF, Y)}, {}, "client 'b': row 3 of x holds NaN or infinity"),
        ({"b": (X, torch.tensor([0.0, float("nan"), 1, 1]))}, {}, "client 'b': row 1 of y holds NaN"),
        (
            {"a": (X, Y), "b": (X, torch.tensor([0, 1, 7, 1]))},
            {"classes": 2},
            "client 'b': row 2 has label 7; 2 classes",
        ),
        ({"b": (X, torch.tensor([0, -1, 1, 1]))}, {}, "client 'b': row 1 has label -1"),
        ({"b": (X, Y.float())}, {"classes": 2}, "client 'b': y is float32; 2 classes need whole numbers 0 to 1"),
        ({"a": (X, Y), "b": (X[:, :1], Y)}, {}, r"client 'b': records of shape \(1,\), the first client's are \(2,\)"),
        ({"a": (X, Y), "b": (X, Y.float())}, {}, r"client 'b': y is float32 \(\), the first client's is int64"),
        ({"b": (X.byte(), Y)}, {}, "client 'b': x is uint8; scale it"),
        ({"b": (X, Y[:, None])}, {}, r"client 'b': y has shape \(4, 1\)"),
        ({"b": (np.array([["a"]]), Y[:1])}, {}, "client 'b': x is not an array of numbers"),
        ({"b": (X, Y, X)}, {}, r"client 'b': give \(x, y\)"),
    ],
)
def test_bad_records_are_refused_by_name(clients, more, message):
    with pytest.raises(DataError, match=message):
        Federation.from_clients(clients, **more)


def test_bad_settings_are_refused_by_name():
    for setting, value in (
        ("test_fraction", 1.0),
        ("fraction", 0.0),
        ("seed", -1),
        ("clients", 201),
        ("clients", None),
    ):
        with pytest.raises(SettingError, match=f"^{setting} = "):
            Federation.partition(dataset(), **{"clients": 2, setting: value})
    with pytest.raises(SettingError, match="partition = 'dirichlett': no such partition; did you mean 'dirichlet'"):
        Federation.partition(dataset(), clients=2, how="dirichlett")


def test_digits_dealt_as_in_the_paper():
    federation = Federation.partition(load("digits"), clients=10, beta=0.1, seed=0)
    sizes = [len(c.train) + len(c.test) for c in federation.clients]
    assert sum(sizes) == 1797
    assert min(sizes) >= 10
    assert federation.name == "digits"
