"""CSV and Parquet: every number of a small table worked out by hand, and the same from either form."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedfdp.core.errors import SettingError
from fedfdp.data.files import read as reading
from fedfdp.data.files import tables, text_table
from fedfdp.data.files.encode import scaled
from fedfdp.data.files.read import read_inputs, read_records
from fedfdp.data.schema import Facts
from own_files import CSV, facts

# age 20 of [0, 110] → 20/110·2 − 1; stay 1.5 of [0, 60] → −0.95; then one input each for f and m
BY_HAND = [[20 / 110 * 2 - 1, -0.95, 1, 0], [1, -1, 0, 1], [65 / 110 * 2 - 1, 1, 0, 1]]


def test_a_table_by_hand(read):
    got = read(CSV)
    assert got.x.dtype == torch.float32
    assert torch.allclose(got.x, torch.tensor(BY_HAND), atol=1e-6)
    assert got.y.tolist() == [0, 1, 0]
    assert (got.holders, got.owner.tolist(), got.classes, got.test) == (("north", "south"), [0, 0, 1], 2, None)


@pytest.mark.parametrize(
    "text",
    [
        CSV.replace(",", ";"),
        CSV.replace(",", "\t"),
        "﻿" + CSV,
        CSV.replace("\n", "\r\n"),
        CSV.replace("site,age", " site , age "),
        CSV.replace("north,20", '"north", 20 '),
        CSV.rstrip("\n"),
    ],
    ids=["semicolons", "tabs", "BOM", "CRLF", "spaces in the header", "quotes and spaces", "no last newline"],
)
def test_forms_of_csv(read, text):
    got = read(text)
    assert torch.allclose(got.x, torch.tensor(BY_HAND), atol=1e-6)
    assert got.holders == ("north", "south")


def test_columns_come_in_the_order_of_the_config_whatever_the_file_s(read):
    turned = "back,stay,sex,age,site\nno,1.5,f,20,north\nyes,0,m,110,north\nno,60,m,65,south\n"
    assert torch.equal(read(turned).x, read(CSV).x)


def test_parquet_gives_the_same_bits_in_its_own_types(tmp_path, read):
    table = pa.table(
        {
            "site": pa.array(["north", "north", "south"]).dictionary_encode(),
            "age": pa.array([20, 110, 65], pa.int16()),
            "sex": ["f", "m", "m"],
            "stay": [1.5, 0.0, 60.0],
            "back": ["no", "yes", "no"],
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    got = read_records(facts(), tmp_path / "t.parquet")
    assert torch.equal(got.x, read(CSV).x)
    assert got.y.tolist() == [0, 1, 0]
    assert got.holders == ("north", "south")


def test_pieces_join_seamlessly(tmp_path, monkeypatch):
    """A table of 3,000 rows read in many pieces, against numpy on the whole of it."""
    monkeypatch.setattr(text_table, "BLOCK", 4096)
    monkeypatch.setattr(tables, "PIECE", 256)
    rng = np.random.default_rng(0)
    values, who = rng.normal(size=(3000, 3)), rng.choice(["b", "a", "c"], 3000)
    names = {f"c{i}": values[:, i] for i in range(3)}
    table = pa.table({**names, "who": who, "y": (values[:, 0] > 0).astype(int)})
    pq.write_table(table, tmp_path / "t.parquet")
    pyarrow.csv.write_csv(table, tmp_path / "t.csv")
    about = Facts(holder="who", label="y", classes=2, columns={"c*": [-1, 1]})
    for name in ("t.parquet", "t.csv"):
        got = read_records(about, tmp_path / name)
        assert np.array_equal(got.x.numpy(), np.clip(values, -1, 1).astype(np.float32))
        assert [got.holders[i] for i in got.owner] == who.tolist()
        assert got.y.tolist() == (values[:, 0] > 0).astype(int).tolist()


def test_missing_values_are_filled_by_a_public_value_and_marked(read):
    text = CSV.replace("north,20,f,1.5", "north,NA,,1.5")
    columns = {
        "age": {"range": [0, 110], "missing": 55, "indicator": True},
        "stay": [0, 60],
        "sex": {"categories": ["f", "m"], "missing": "m"},
    }
    got = read(text, facts(columns=columns))
    assert torch.allclose(got.x[0], torch.tensor([0.0, 1.0, -0.95, 0.0, 1.0]))  # 55 is the middle of [0, 110]
    assert got.x[1].tolist() == [1.0, 0.0, -1.0, 0.0, 1.0]


def test_values_outside_are_clamped_and_unknown_categories_have_their_place(read):
    text = CSV.replace("north,20,f", "north,130,x")
    columns = {"age": [0, 110], "stay": [0, 60], "sex": {"categories": ["f", "m"], "other": True}}
    assert read(text, facts(columns=columns)).x[0].tolist() == pytest.approx([1.0, -0.95, 0.0, 0.0, 1.0])


@pytest.mark.parametrize(("written", "classes"), [("0,1,0", 2), ("1,3,1", [1, 3]), ("false,true,false", [False, True])])
def test_classes_by_number_and_by_name(read, written, classes):
    rows = "\n".join(f"{v},{label}" for v, label in zip("123", written.split(","), strict=True))
    about = Facts(label="y", classes=classes if isinstance(classes, int) else tuple(classes), columns={"v": [0, 4]})
    assert read(f"v,y\n{rows}\n", about).y.tolist() == [0, 1, 0]


def test_whole_numbers_and_truth_values_match_as_pandas_writes_them(read):
    """A column of whole numbers with gaps becomes 1.0, 2.0, …; truth values become True and False."""
    columns = {
        "sex": {"categories": [1, 2], "missing": 2},
        "smokes": [False, True],
        "ward": {"categories": ["1.0", "1"], "other": True},
    }
    about = Facts(holder="site", label="y", classes=3, unit="who", test="part", columns=columns)
    rows = "7.0,1,1.0,True,1.0,2.0,0.0\n7.0,1.0,2.00,FALSE,1,0.0,1.0\n8,2,,false,1.5,1,0\n"
    text = "site,who,sex,smokes,ward,y,part\n" + rows
    got = read(text, about)
    ward = [[1, 0, 0], [0, 1, 0], [0, 0, 1]]  # as it is written where that is listed
    rest = [[1, 0, 0, 1], [0, 1, 1, 0], [0, 1, 1, 0]]
    assert got.x.int().tolist() == [r + w for r, w in zip(rest, ward, strict=True)]
    assert (got.holders, got.owner.tolist(), got.y.tolist()) == (("7", "8"), [0, 0, 1], [2, 0, 1])
    assert (got.unit.tolist(), got.test.tolist()) == ([0, 0, 1], [False, True, False])  # 1 and 1.0 are one person


def test_regression_targets_are_scaled_from_their_range(read):
    about = Facts(label="y", target=(100.0, 300.0), columns={"v": [0, 4]})
    got = read("v,y\n1,100\n2,250\n3,900\n", about)
    assert (got.y.dtype, got.y.tolist(), got.classes) == (torch.float32, [-1.0, 0.5, 1.0], None)


def test_what_is_predicted_is_no_input(read):
    about = Facts(label="y", classes=2, columns={"v": [0, 4], "y": {"categories": [0, 1]}})
    with pytest.raises(SettingError, match=r"data\.columns\.y = .*: it is data\.label: as an input it would give away"):
        read("v,y\n1,0\n2,1\n", about)


def test_a_test_column_marks_rows(read):
    text = "v,y,part\n1,0,train\n2,1,TEST\n3,0,0\n4,1,1\n"
    about = Facts(label="y", classes=2, test="part", columns={"v": [0, 4]})
    assert read(text, about).test.tolist() == [False, True, False, True]


def test_inputs_alone_need_no_label_and_ignore_one(tmp_path, read):
    whole = read(CSV)
    (tmp_path / "new.csv").write_text("age,sex,stay\n20,f,1.5\n")
    assert torch.equal(read_inputs(facts(), tmp_path / "new.csv"), whole.x[:1])
    assert torch.equal(read_inputs(facts(), tmp_path / "holders.csv"), whole.x)


def test_a_reading_says_how_far_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(text_table, "BLOCK", 1024)
    monkeypatch.setattr(reading, "SAY_EVERY", 0.0)
    (tmp_path / "t.csv").write_text("v,y\n" + "1,0\n" * 1000)
    said = []
    read_records(Facts(label="y", classes=2, columns={"v": [0, 4]}), tmp_path / "t.csv", progress=said.append)
    assert said[0].startswith("t.csv: 2")
    assert said[0].endswith(" of 1,000 rows read, 0 s left")
    assert said[-1] == "t.csv: 1,000 rows read in 0 s"


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20),
    st.floats(-1e5, 1e5),
    st.floats(1e-3, 1e5),
)
def test_scaling_never_leaves_its_interval_and_keeps_order(values, low, width):
    given_ = np.sort(np.array(values))
    got = scaled(given_, (low, low + width))
    assert got.min() >= -1.0
    assert got.max() <= 1.0
    assert (np.diff(got) >= 0).all()
    assert scaled(np.array([low, low + width]), (low, low + width)).tolist() == [-1.0, 1.0]
