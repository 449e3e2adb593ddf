"""Presets, files that build on others, and overrides: what lies on top of what, and where paths are."""

import pytest

from fedfdp.algorithms import FedAvg, FedFair
from fedfdp.core.errors import SettingError
from fedfdp.runs import config


def test_another_method_takes_along_only_what_every_method_has():
    c = config.load("default", ["algorithm.name=fedavg"])
    assert c.algorithm == FedAvg(lr=16.0)
    c = config.load("default", ["algorithm.name=fedfair", "algorithm.lam=0.3", "privacy=none", "rounds=3"])
    assert c.algorithm == FedFair(lr=16.0, lam=0.3)
    assert c.resolved().privacy is None


def test_a_file_builds_on_a_preset(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('base = "default"\nname = "mine"\nrounds = 7\n[algorithm]\nserver_lam = 1.5\n')
    c = config.load(str(file), ["seed=4"])
    assert (c.name, c.rounds, c.seed, c.algorithm.server_lam, c.algorithm.lr) == ("mine", 7, 4, 1.5, 16.0)


def test_a_base_is_beside_the_file_that_names_it(tmp_path, monkeypatch):
    (tmp_path / "below" / "deep").mkdir(parents=True)
    (tmp_path / "below" / "first.toml").write_text('rounds = 3\nseed = 5\n[data]\nsource = "a.csv"\n')
    (tmp_path / "below" / "deep" / "second.toml").write_text('base = "../first.toml"\nrounds = 4\n')
    (tmp_path / "third.toml").write_text('base = "below/deep/second.toml"\nname = "third"\n')
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    c = config.load("../third.toml")
    assert (c.name, c.rounds, c.seed) == ("third", 4, 5)
    assert c.data.source == str(tmp_path / "below" / "a.csv")  # beside the file that says it


def test_what_is_wrong_with_a_base_is_one_line(tmp_path):
    file = tmp_path / "mine.toml"
    for base, message in (
        ('"none.toml"', rf"base of {file} = '{tmp_path / 'none.toml'}': cannot be read: No such file"),
        ('"defalt"', rf"base of {file} = 'defalt': did you mean 'default'\?.*; or the path of a \.toml file"),
        ('"mine.toml"', rf"base = '{file}': builds on itself, by way of {file}"),
        ("3", r"base = 3: the name of a preset or the path of a \.toml file"),
    ):
        file.write_text(f"base = {base}\n")
        with pytest.raises(SettingError, match=message) as caught:
            config.load(str(file))
        assert "\n" not in str(caught.value)


def test_a_folder_is_beside_its_file_and_a_source_below_it(tmp_path, monkeypatch):
    (tmp_path / "given" / "clinics").mkdir(parents=True)
    (tmp_path / "base.toml").write_text('[data]\nfolder = "given"\nsource = "a.csv"\n')
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.toml").write_text('base = "../base.toml"\n[data]\nsource = "clinics"\n')
    monkeypatch.chdir(tmp_path / "other")
    given = str(tmp_path / "given")
    data = config.load("../base.toml").data
    assert (data.folder, data.source) == (given, "a.csv")
    data = config.load("mine.toml").data
    assert (data.folder, data.source) == (given, "./clinics")  # a path, wherever it is looked at
    assert config.load("mine.toml", ["data.folder=away"]).data.folder == str(tmp_path / "other" / "away")
    assert config.load("mine.toml", ["data.source=mnist"]).data.source == "mnist"
    (tmp_path / "plain.toml").write_text('[data]\nsource = "a.csv"\n')
    assert config.load("../plain.toml").data.source == str(tmp_path / "a.csv")
    data = config.load("../plain.toml", ["data.folder=away"]).data
    assert (data.folder, data.source) == (str(tmp_path / "other" / "away"), "a.csv")
    assert config.load("../plain.toml", ["data.source=b.csv"]).data.source == str(tmp_path / "other" / "b.csv")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(SettingError, match=r"preset = 'defalt': did you mean 'default'\?"):
        config.load("defalt")
    with pytest.raises(SettingError, match="cannot be read: No such file"):
        config.load(str(tmp_path / "none.toml"))
    (tmp_path / "bad.toml").write_text("rounds = = 3")
    with pytest.raises(SettingError, match="not valid TOML"):
        config.load(str(tmp_path / "bad.toml"))
