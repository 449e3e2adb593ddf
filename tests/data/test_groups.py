"""A column of groups: declared in [data], kept in the inputs or held out of them, measured at the test."""

import json

import numpy as np
import pytest

from fedfdp.cli.result import by_group
from fedfdp.core.errors import DataError, SettingError
from fedfdp.data import load, read_inputs
from fedfdp.engines.flower.policy import NodeData
from fedfdp.fairness.metrics import measures
from fedfdp.models import build
from fedfdp.models.learner import Learner
from fedfdp.models.losses import cross_entropy
from fedfdp.runs import config as configs
from fedfdp.runs.build import federation_of, launch
from fedfdp.training.evaluation import LocalEvaluator

ROWS = [("a", i % 5, ("f", "m")[i % 2], ("no", "yes")[i % 3 == 0], i % 4 == 0) for i in range(24)]
ROWS += [("b", i % 5, ("m", "f")[i % 3 == 0], ("no", "yes")[i % 2], i % 4 == 0) for i in range(24)]


@pytest.fixture
def config(tmp_path):
    text = "\n".join(f"{who},{age},{sex},{ill},{'test' if test else 'train'}" for who, age, sex, ill, test in ROWS)
    (tmp_path / "t.csv").write_text("who,age,sex,ill,part\n" + text + "\n")
    data = {"source": str(tmp_path / "t.csv"), "holder": "who", "label": "ill", "classes": ["no", "yes"]}
    data |= {"test": "part", "columns": {"age": [0, 4], "sex": ["f", "m"]}}

    def made(**more):
        shared = {"data": {**data, **more}, "algorithm": {"name": "fedavg", "lr": 0.1}, "model": {"name": "linear"}}
        return configs.from_dict({**shared, "rounds": 2})

    return made


def test_each_record_has_its_group_and_the_column_is_an_input_unless_it_is_held_out(config):
    kept, aside = federation_of(config(group="sex")), federation_of(config(group="sex", group_input=False))
    for federation in (kept, aside):
        assert (federation.groups.column, federation.groups.names, federation.groups.favourable) == (
            "sex",
            ("f", "m"),
            1,
        )
        assert federation.groups.of.tolist() == [("f", "m").index(row[2]) for row in ROWS]
    assert (kept.input_shape, aside.input_shape) == ((3,), (1,))
    assert np.array_equal(aside.x[:, 0], kept.x[:, 0])  # the age, as before
    assert federation_of(config()).groups is None
    assert federation_of(config(group="sex", favourable="no")).groups.favourable == 0


def test_a_run_keeps_what_groups_get_and_its_gaps(config, tmp_path):
    launch(config(group="sex"), out=tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    test = [row for row in ROWS if row[4]]
    groups = summary["groups"]
    assert groups["records"] == [sum(row[2] == sex for row in test) for sex in ("f", "m")]
    of_class = [sum((row[2], row[3]) == (sex, "yes") for row in test) for sex in ("f", "m")]
    assert (groups["column"], groups["favourable"], groups["favourable_records"]) == ("sex", "yes", of_class)
    assert summary["parity_gap"] == pytest.approx(abs(groups["given"][0] - groups["given"][1]))
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert len(last["clients"]["parity_gap"]) == len(last["clients"]["opportunity_gap"]) == 2
    shown = by_group({**groups, "given": [0.25, 0.5], "recognised": [None, 1.0], "favourable_records": [0, 4]})
    assert shown.splitlines()[1:] == [
        f"  f   25.0% of {groups['records'][0]}",
        f"  m   50.0% of {groups['records'][1]}; 100.0% of the 4 that are",
    ]


def test_what_a_node_measures_has_nothing_of_groups(config):
    """A node keeps no answers, and refuses to be told of groups."""
    federation = federation_of(config(group="sex"))
    learner = Learner(build("linear", input_shape=(3,), outputs=2, seed=0), cross_entropy)
    found = measures(LocalEvaluator(learner, federation, answers=False).test(learner.initial()))
    assert not {"parity_gap", "opportunity_gap", "groups"} & found.keys()
    with pytest.raises(SettingError, match=r"data\.group = 'sex': a node gives out nothing of groups"):
        NodeData(file="t.csv", columns={"sex": ["f", "m"]}, group="sex")


def test_a_file_to_predict_from_needs_no_column_that_was_held_out(config, tmp_path):
    data = config(group="sex", group_input=False).data
    for header, cell in (("age,sex", "2,f"), ("age", "2")):
        (tmp_path / "new.csv").write_text(f"{header}\n{cell}\n")
        assert read_inputs(data, data.source, tmp_path / "new.csv").tolist() == [[0.0]]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"group": "age"}, "data.group = 'age': no such column with categories; .*sex"),
        ({"group": "sx"}, "did you mean 'sex'"),
        ({"group_input": False}, "data.group_input = False: goes together with data.group"),
        ({"group": "sex", "favourable": "maybe"}, "data.favourable = 'maybe': no such class; .*no, yes"),
        ({"group": "sex", "classes": None, "target": [0, 1]}, "groups are compared by how often they get a class"),
    ],
)
def test_what_cannot_be_compared_is_one_clear_line(config, more, message):
    with pytest.raises((SettingError, DataError), match=message):
        federation_of(config(**more))


def test_a_value_that_is_no_group_names_its_row(config, tmp_path):
    (tmp_path / "t.csv").write_text("who,age,sex,ill,part\na,1,x,no,train\n")
    with pytest.raises(DataError, match=r"row 1.*no such category as 'x'"):
        federation_of(config(group="sex", group_input=False))


def test_a_dataset_by_name_has_groups_too():
    with pytest.raises(SettingError, match=r"data\.group = 'sex': digits has no such column"):
        load("digits", asked=configs.from_dict({"data": {"source": "digits", "group": "sex"}}).data)
    asked = configs.from_dict({"data": {"source": "digits", "group": "label", "favourable": 3}}).data
    groups = load("digits", asked=asked).groups
    assert (groups.names, groups.favourable) == (tuple("0123456789"), 3)
