"""Features of all records: computed once, by content, each record by itself, and refused where they cannot be."""

import stat

import pytest
import torch
from torch import nn

from fedfdp.core.errors import DataError, SettingError
from fedfdp.features import Features, as_map, frozen, shape_after
from fedfdp.features.mapped import mapped
from fedfdp.features.scattering import Scattering

X = torch.randn(70, 1, 16, 16, generator=torch.Generator().manual_seed(0))


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        assert len(x) <= 2, "more than one record at a time"
        return x.flatten(1) * self.scale


class Draws(Twice):
    def forward(self, x):
        return x.flatten(1) + torch.rand(())


class Infinite(Twice):
    def forward(self, x):
        return x.flatten(1) / torch.zeros(())


class Mixes(Twice):
    def forward(self, x):
        return (x - x.mean(0)).flatten(1)


def test_they_are_what_the_map_gives(tmp_path):
    net, said = as_map("scattering"), []
    found = mapped(net, X, folder=tmp_path, threads=2, progress=said.append)
    assert found.dtype == torch.float16
    assert torch.allclose(found.float(), net(X), atol=4e-3, rtol=2e-3)  # half precision
    assert said[-1].startswith("features: 70 records in ")


def test_they_are_computed_once_for_the_same_content(tmp_path):
    net, said = Scattering(), []
    first = mapped(net, X, folder=tmp_path)
    (kept,) = tmp_path.glob("*.npy")
    again = mapped(Scattering(), X.clone(), folder=tmp_path, progress=said.append)
    assert torch.equal(first, again)
    assert not said
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600  # it holds what the records hold
    changed = X.clone()
    changed[3, 0, 0, 0] += 1
    mapped(net, changed, folder=tmp_path)
    mapped(Scattering(power=0.5), X, folder=tmp_path)
    assert len(list(tmp_path.glob("*.npy"))) == 3


def test_what_is_done_to_them_does_not_reach_the_file(tmp_path):
    mapped(Scattering(), X, folder=tmp_path).zero_()
    assert mapped(Scattering(), X, folder=tmp_path).abs().max() > 1


def test_a_map_of_ones_own_gets_one_record_at_a_time(tmp_path):
    assert torch.allclose(mapped(as_map(Twice()), X, folder=tmp_path).float(), 2 * X.flatten(1), atol=4e-3)
    # where it would mix records there is none to mix with: every record minus itself
    assert float(mapped(as_map(Mixes()), X, folder=tmp_path).abs().max()) == 0


@pytest.mark.parametrize(
    ("kind", "error", "said"),
    [
        (Draws, SettingError, "draws at random"),
        (Infinite, DataError, "features of record 0 are not finite"),
    ],
)
def test_a_map_that_cannot_be_is_refused_and_nothing_is_kept(tmp_path, kind, error, said):
    with pytest.raises(error, match=said):
        mapped(as_map(kind()), X, folder=tmp_path)
    assert not list(tmp_path.glob("*.npy"))
    assert not list(tmp_path.glob("*.part"))


def test_a_damaged_file_is_named(tmp_path):
    mapped(Scattering(), X, folder=tmp_path)
    (kept,) = tmp_path.glob("*.npy")
    kept.write_bytes(kept.read_bytes()[:100])
    with pytest.raises(DataError, match="is damaged; delete it"):
        mapped(Scattering(), X, folder=tmp_path)


def test_settings_that_cannot_be_are_named():
    with pytest.raises(SettingError, match=r"features\.name = 'scatering': did you mean 'scattering'"):
        Features("scatering")
    with pytest.raises(SettingError, match=r"features\.arguments"):
        Features("scattering", {"angle": 3}).build()
    with pytest.raises(SettingError, match="token numbers"):
        mapped(Scattering(), torch.zeros(3, 1, 16, 16, dtype=torch.int64))
    with pytest.raises(SettingError, match="cannot take records of shape"):
        shape_after(nn.Linear(3, 2), (5,))


class ForAWhile(nn.Module):
    """Keeps a record in a list, adds it to the next ones, and forgets it before the last."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = []

    def forward(self, x):
        found = x + sum(self.kept) if self.kept else x
        if len(self.kept) > 3:
            self.kept.clear()
        elif self.kept or float(x[0, 0]) > 5:
            self.kept.append(x.clone())
        return found


class Attribute(nn.Module):
    """The same with a tensor as an attribute: that is put back after every record."""

    kept = None

    def forward(self, x):
        before, self.kept = self.kept, x.clone() if float(x[0, 0]) > 5 else None
        return x if before is None else x + before


class Seeds(nn.Module):
    """Sets torch's seed by one record, and reads it at the next."""

    def forward(self, x):
        found = x + torch.initial_seed() % 997
        if float(x[0, 0]) > 5:
            torch.manual_seed(int(x[0, 0]))
        return found


@pytest.mark.parametrize("kind", [Attribute, Seeds])
def test_no_record_reaches_the_features_of_another(kind, tmp_path):
    x = torch.zeros(12, 4)
    changed = x.clone()
    changed[5] = 9.0
    one, other = (mapped(frozen(kind()), given, folder=tmp_path) for given in (x, changed))
    assert [row for row in range(12) if not torch.equal(one[row], other[row])] == [5]


def test_a_map_that_remembers_for_a_while_is_refused(tmp_path):
    x = torch.zeros(12, 4)
    x[5] = 9.0
    with pytest.raises(SettingError, match=r"features = 'ForAWhile': model\.kept changes while it maps records"):
        mapped(frozen(ForAWhile()), x, folder=tmp_path)
    assert not list(tmp_path.glob("*.npy"))


def test_a_map_of_ours_with_a_hook_is_given_one_record_at_a_time(tmp_path):
    module = as_map("scattering")
    module.register_forward_hook(lambda _, args, found: found + len(args[0]))
    assert torch.allclose(mapped(module, X[:3], folder=tmp_path).float(), Scattering()(X[:3]) + 1, atol=4e-3, rtol=2e-3)
