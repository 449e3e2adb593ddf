"""A column that says of whom a row is: read, split by person, drawn by person, and said in check and statement."""

import json

import numpy as np
import pytest

from fedfdp.core.errors import DataError, SettingError
from fedfdp.data.validation import review
from fedfdp.runs import config
from fedfdp.runs.build import federation_of, fitted, launch

CONFIG = """
[data]
source = "{source}"
holder = "site"
label = "ill"
unit = "patient"
classes = ["no", "yes"]
columns = {{ age = [0, 100] }}

[model]
name = "linear"

[privacy]
epsilon = 8.0
q = 0.2
sigma = 2.0
delta = 1e-3
accountant = "rdp"
"""


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    lines = ["site,patient,age,ill"]
    for i in range(400):
        site = "east" if i % 4 else "west"
        patient = "traveller" if i % 31 == 0 else f"{site[0]}{rng.integers(0, 60)}"
        lines.append(f"{site},{patient},{rng.integers(20, 90)},{'yes' if rng.random() < 0.4 else 'no'}")
    path = tmp_path / "visits.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def settings(tmp_path, source, *overrides):
    file = tmp_path / "run.toml"
    file.write_text(CONFIG.format(source=source))
    return config.load(str(file), list(overrides))


def rows_of(path):
    return [line.split(",") for line in path.read_text().splitlines()[1:]]


def test_a_run_draws_and_counts_persons(tmp_path, table):
    c = settings(tmp_path, table, "rounds=3")
    federation = federation_of(c)
    assert federation.unit == "patient"
    patients = {site: {p for s, p, *_ in rows_of(table) if s == site} for site in ("east", "west")}
    for client in federation.clients:
        rows = rows_of(table)
        train, test = ({rows[i][1] for i in part.index.tolist()} for part in (client.train, client.test))
        assert not train & test
        assert train | test == patients[client.name]
        assert client.size == len(train)
    launch(c, out=tmp_path / "run")
    said = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert said["unit"] == "one patient at one client: all records with one value in column patient"
    assert said["guarantee"].startswith("Every patient of every client is protected with ε = ")
    assert [client["records"] for client in said["clients"]] == [client.size for client in federation.clients]


def test_an_archive_can_name_persons_too(tmp_path):
    x = np.arange(12, dtype=np.float32)[:, None] / 12
    site = np.array(["e", "w"] * 6)
    who = np.arange(12) // 4
    np.savez(tmp_path / "v.npz", x=x, ill=np.array(["no", "yes"] * 6), site=site, patient=who)
    c = settings(tmp_path, tmp_path / "v.npz")
    federation = federation_of(config.from_dict({**c.to_dict(), "data": {**c.to_dict()["data"], "columns": {}}}))
    assert [client.train.unit.tolist() for client in federation.clients] == [(np.arange(12) // 4).tolist()] * 2


def test_the_check_tells_who_is_at_two_holders(tmp_path, table):
    c = settings(tmp_path, table, "rounds=3")
    c = fitted(c, federation_of(c))
    everyone = {p for _, p, *_ in rows_of(table)}
    advice = review(federation_of(c), c.privacy).advice
    assert any(f"1 of {len(everyone)} values of 'patient' are at more than one holder" in line for line in advice)


def test_a_row_without_a_person_is_named(tmp_path, table):
    lines = table.read_text().splitlines()
    site, _, age, ill = lines[3].split(",")
    lines[3] = f"{site},,{age},{ill}"
    table.write_text("\n".join(lines))
    with pytest.raises(DataError, match=r"row 3, column 'patient'.*every row needs its person"):
        federation_of(settings(tmp_path, table))


def test_a_column_that_is_not_there_is_named(tmp_path, table):
    with pytest.raises(DataError, match=r"no column 'person' as data.unit says"):
        federation_of(settings(tmp_path, table, "data.unit=person", 'data.ignore=["patient"]'))


def test_ranges_are_not_estimated_by_record_where_persons_are_protected(tmp_path, table):
    with pytest.raises(SettingError, match=r"data\.unit.*give public ranges"):
        settings(tmp_path, table, 'data.columns={age="private"}')


@pytest.mark.parametrize("partition", ["dirichlet", "iid", "shards"])
@pytest.mark.parametrize("fraction", [1.0, 0.5])
def test_persons_are_dealt_out_whole(tmp_path, table, partition, fraction):
    """Dealt by record, every person would be at several clients, and protected by none of their ε alone."""
    c = settings(tmp_path, table, f"data.partition={partition}", "data.clients=3", f"data.fraction={fraction}")
    data = {k: v for k, v in c.to_dict()["data"].items() if k != "holder"} | {"ignore": ["site"]}
    federation = federation_of(config.from_dict({**c.to_dict(), "data": data}))
    rows, at = rows_of(table), {}
    for client in federation.clients:
        own = [rows[i][1] for part in (client.train, client.test) for i in part.index.tolist()]
        for patient in set(own):
            assert at.setdefault(patient, client.name) == client.name
            assert own.count(patient) == sum(p == patient for _, p, *_ in rows)  # all of them, or none
    everyone = {p for _, p, *_ in rows}
    assert len(at) == round(fraction * len(everyone))


def test_a_part_of_the_records_is_a_part_of_the_persons_of_every_holder(tmp_path, table):
    federation = federation_of(settings(tmp_path, table, "data.fraction=0.5"))
    rows = rows_of(table)
    for client in federation.clients:
        own = [rows[i][1] for part in (client.train, client.test) for i in part.index.tolist()]
        for patient in set(own):
            assert own.count(patient) == sum((s, p) == (client.name, patient) for s, p, *_ in rows)


def test_a_node_with_a_part_of_such_records_says_whom_it_protects(tmp_path, table):
    from fedfdp.deploy.node import own_records
    from fedfdp.engines.flower.policy import NodeData

    settings(tmp_path, table)
    alone = own_records("east", NodeData(config=str(tmp_path / "run.toml"), part=0)).federation
    assert (alone.unit, alone.clients[0].name) == ("patient", "east")
