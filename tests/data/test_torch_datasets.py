"""torch Datasets of (x, y) beside arrays: the same records, the same splits, and one line for what is no such thing."""

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset, random_split

from fedfdp.core.errors import DataError
from fedfdp.data import Federation

X, Y = torch.arange(24.0).reshape(12, 2), torch.arange(12) % 3


class Items(Dataset):
    """Whatever items it is given, as many libraries give them: a tensor and a plain number."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class Endless(IterableDataset):
    def __iter__(self):
        yield X[0], Y[0]


@pytest.mark.parametrize(
    "dataset",
    [TensorDataset(X, Y), Items([(x.numpy(), int(y)) for x, y in zip(X, Y, strict=True)]), Items(list(zip(X, Y)))],  # noqa: B905
)
def test_a_dataset_is_what_its_arrays_are(dataset):
    arrays = Federation.from_clients({"a": (X, Y), "b": (X + 1, Y)}, seed=4)
    given = Federation.from_clients({"a": dataset, "b": (X + 1, Y)}, seed=4)
    assert given.fingerprint() == arrays.fingerprint()
    assert given.classes == 3


def test_two_datasets_are_train_and_test():
    train, test = Subset(TensorDataset(X, Y), [0, 2, 4]), TensorDataset(X[6:8], Y[6:8])
    (client,) = Federation.from_clients({"a": (train, test)}).clients
    assert torch.equal(client.train.take()[0], X[[0, 2, 4]])
    assert torch.equal(client.test.take()[1], Y[6:8])


def test_a_split_of_torchs_is_two_clients():
    north, south = random_split(TensorDataset(X, Y), [8, 4], generator=torch.Generator().manual_seed(0))
    federation = Federation.from_clients({"north": north, "south": south})
    assert federation.y.tolist() == [int(Y[i]) for i in [*north.indices, *south.indices]]


def test_floating_targets_are_regression():
    assert Federation.from_clients({"a": Items([(torch.ones(2), 0.5), (torch.ones(2), 1.5)])}).classes is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Endless(), "client 'a': Endless has no length; only map-style Datasets are read"),
        (Items([]), "client 'a': its Dataset has no items; leave it out"),
        (Items([{"x": 1, "y": 2}]), r"client 'a': item 0 of its Dataset is no pair \(x, y\)"),
        (TensorDataset(X), r"client 'a': item 0 of its Dataset is no pair \(x, y\)"),
        (Items([(torch.ones(2), 0), (torch.ones(3), 0)]), "client 'a': the items of its Dataset differ in shape"),
        (Items([("a picture", 0)]), "client 'a': x of item 0 is not an array of numbers"),
        ((TensorDataset(X, Y),) * 3, r"client 'a': give \(x, y\), .* a torch Dataset of \(x, y\), or two of them"),
        (7, r"client 'a': give \(x, y\)"),
    ],
)
def test_what_is_no_such_dataset(given, said):
    with pytest.raises(DataError, match=said):
        Federation.from_clients({"a": given})


def test_a_list_of_clients_has_no_names():
    with pytest.raises(DataError, match="no clients by name: give at least one as"):
        Federation.from_clients([(X, Y)])
