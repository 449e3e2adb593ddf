import pytest

from fedfdp.core.errors import SettingError
from fedfdp.runs import config as configs
from fedfdp.tuning.grid import candidates, default_grid, parse_grid


def test_every_combination_once():
    grid = parse_grid(["algorithm.lr=8, 16", "privacy.clip=0.1,1"])
    assert grid == {"algorithm.lr": ["8", "16"], "privacy.clip": ["0.1", "1"]}
    found = candidates("digits", ["rounds=5"], grid, public=None)
    assert [c.label for c in found] == ["lr=8 clip=0.1", "lr=8 clip=1", "lr=16 clip=0.1", "lr=16 clip=1"]
    assert [(c.config.algorithm.lr, c.config.privacy.clip) for c in found] == [(8, 0.1), (8, 1), (16, 0.1), (16, 1)]
    assert all(c.config.rounds == 5 for c in found)


def test_settings_that_change_nothing_make_no_new_candidate():
    grid = {"algorithm.lam": ["0.0", "0.5"], "algorithm.kappa": ["2.0", "4.0"]}
    assert [c.label for c in candidates("digits", [], grid, public=None)] == [
        "lam=0.0 kappa=2.0",
        "lam=0.5 kappa=2.0",
        "lam=0.5 kappa=4.0",
    ]
    rules = {"algorithm.server_rule": ["fixed", "adaptive"], "algorithm.server_lam": ["1", "2"]}
    assert len(candidates("digits", [], rules, public=None)) == 3


def test_default_grid_keeps_to_what_the_method_has():
    assert default_grid(configs.load("default")) == {
        "algorithm.lam": ["0.0", "0.5"],
        "algorithm.kappa": ["2.0", "4.0"],
        "algorithm.server_lam": ["0.0", "5.0", "20.0"],
        "algorithm.lr": ["8.0", "16.0", "32.0"],
        "privacy.clip": ["0.1", "1.0"],
    }
    plain = configs.load("digits", ["algorithm.name=fedavg", "privacy=none", "algorithm.lr=0.1"])
    assert default_grid(plain) == {"algorithm.lr": ["0.05", "0.1", "0.2"]}


def test_public_data_take_the_place_of_private_ones():
    (one,) = candidates("default", ["data.folder=/private"], {"algorithm.lr": ["1"]}, public="digits")
    assert (one.config.data.source, one.config.data.folder) == ("digits", None)
    assert one.overrides == ("algorithm.lr=1",)


@pytest.mark.parametrize("item", ["algorithm.lr", "algorithm.lr=", "=1,2", "algorithm.lr=1,,2"])
def test_malformed_grids(item):
    with pytest.raises(SettingError, match="--grid"):
        parse_grid([item])


def test_unknown_settings_and_forbidden_values_are_found_before_anything_runs():
    for grid in ({"algorithm.lamda": ["1"]}, {"algorithm.lr": ["1", "-1"]}):
        with pytest.raises(SettingError, match=r"algorithm\.l"):
            candidates("digits", [], grid, public=None)
