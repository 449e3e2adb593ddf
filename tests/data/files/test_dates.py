"""Dates and times as inputs, worked out by hand, from text and from Parquet's own types."""

from datetime import date, datetime, time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedfdp.core.errors import DataError, SettingError
from fedfdp.data.columns import column_of
from fedfdp.data.files.read import read_records
from fedfdp.data.schema import Facts

BOUNDS = ["2020-01-01", "2020-01-11"]


def about(spec, **more):
    return Facts(label="y", classes=2, columns={"d": spec}, **more)


def inputs(read, spec, *cells):
    return read("d,y\n" + "".join(f"{cell},{i % 2}\n" for i, cell in enumerate(cells)), about(spec)).x.tolist()


def test_a_range_of_dates_is_scaled_as_numbers_are(read):
    got = inputs(read, BOUNDS, "2020-01-01", "2020-01-06", "2020-01-08 12:00", "2019-12-31", "2021-01-01T00:00:00Z")
    # 10 days: the 6th is the middle, the 8th at noon is 7.5 of 10; what lies outside is taken as the nearer end
    assert [row[0] for row in got] == [-1.0, 0.0, 0.5, -1.0, 1.0]


def test_cycles_by_hand(read):
    # 2023 has 365 days, so its middle is 2 July at noon; a quarter of a day is 6 o'clock; 6 November 2023 is a Monday
    spec = {"cycles": ["year", "day"]}
    got = inputs(read, spec, "2023-01-01", "2023-07-02 12:00", "2023-01-01 06:00")
    assert got[0] == pytest.approx([0, 1, 0, 1], abs=1e-6)
    assert got[1] == pytest.approx([0, -1, 0, -1], abs=1e-6)
    assert got[2][2:] == pytest.approx([1, 0], abs=1e-6)
    assert inputs(read, {"cycles": ["week"]}, "2023-11-06", "2023-11-09 12:00")[0] == pytest.approx([0, 1], abs=1e-6)
    assert inputs(read, {"cycles": ["week"]}, "2023-11-06", "2023-11-09 12:00")[1] == pytest.approx([0, -1], abs=1e-6)
    # April has 30 days: the 16th is its middle
    assert inputs(read, {"cycles": ["month"]}, "2023-04-16")[0] == pytest.approx([0, -1], abs=1e-6)


def test_new_year_is_near_the_end_of_the_year(read):
    first, last, summer = inputs(read, {"cycles": ["year"]}, "2024-01-01", "2023-12-31", "2024-07-01")
    distance = [sum((a - b) ** 2 for a, b in zip(first, other, strict=True)) for other in (last, summer)]
    assert distance[0] < 0.001 < 3.9 < distance[1]


def test_times_of_day(read):
    assert inputs(read, ["00:00", "12:00"], "03:00", "18:30")[0] == [-0.5]
    assert inputs(read, {"cycles": ["day"]}, "18:00:00", "2024-05-01 18:00")[0] == pytest.approx([-1, 0], abs=1e-6)
    assert inputs(read, {"cycles": ["day"]}, "18:00:00", "2024-05-01 18:00")[1] == pytest.approx([-1, 0], abs=1e-6)


def test_other_ways_to_write_a_date_and_missing_ones(read):
    spec = {"range": BOUNDS, "format": "%d.%m.%Y", "missing": "2020-01-06", "indicator": True}
    assert inputs(read, spec, "11.01.2020", "", "NA") == [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]


def test_parquet_gives_the_same_numbers_in_its_own_types(tmp_path):
    moments = [datetime(2020, 1, 3, 6, 30), datetime(2020, 1, 9, 23, 0)]
    spec = {"range": BOUNDS, "cycles": ["year", "month", "week", "day"]}
    texts = [str(moment) for moment in moments]
    found = []
    for values in (moments, texts, pa.array(moments, pa.timestamp("ns"))):
        pq.write_table(pa.table({"d": values, "y": [0, 1]}), tmp_path / "t.parquet")
        found.append(read_records(about(spec), tmp_path / "t.parquet").x.tolist())
    assert found[0] == found[1] == found[2]
    pq.write_table(pa.table({"d": [date(2020, 1, 6), None], "y": [0, 1]}), tmp_path / "t.parquet")
    filled = {"range": BOUNDS, "missing": "2020-01-11"}
    assert read_records(about(filled), tmp_path / "t.parquet").x.tolist() == [[0.0], [1.0]]
    pq.write_table(pa.table({"d": [time(6), time(18)], "y": [0, 1]}), tmp_path / "t.parquet")
    assert read_records(about(["00:00", "12:00"]), tmp_path / "t.parquet").x.tolist() == [[0.0], [1.0]]


def test_an_offset_is_passed_over_and_the_clock_counts(tmp_path, read):
    assert inputs(read, {"cycles": ["day"]}, "2024-05-01T06:00:00+02:00")[0] == pytest.approx([1, 0], abs=1e-6)
    zoned = pa.array([datetime(2024, 5, 1, 4)], pa.timestamp("us", tz="Europe/Berlin"))  # 6 o'clock there
    pq.write_table(pa.table({"d": zoned, "y": [0]}), tmp_path / "t.parquet")
    assert read_records(about({"cycles": ["day"]}), tmp_path / "t.parquet").x[0].tolist() == pytest.approx(
        [1, 0], abs=1e-6
    )


@pytest.mark.parametrize(
    ("spec", "cell", "said"),
    [
        (BOUNDS, "yesterday", r"row 2, column 'd': 'yesterday' is no date or time; write it as 2024-12-31"),
        (BOUNDS, "2024", r"'2024' is no date or time"),
        (BOUNDS, "2020-02-30", r"'2020-02-30' is no date"),
        (BOUNDS, "12:00", r"row 2, column 'd': a time of day where dates are declared"),
        (["08:00", "16:00"], "2020-01-01", r"a date where times of day are declared"),
        (BOUNDS, "", r"row 2, column 'd': is missing; set missing"),
        ({"range": BOUNDS, "format": "%d.%m.%Y"}, "2020-01-01", r"write it as '%d.%m.%Y' says"),
    ],
)
def test_a_cell_that_is_no_such_date(read, spec, cell, said):
    first = {True: "03.01.2020", False: "2020-01-03"}["format" in spec]
    first = "09:00" if spec == ["08:00", "16:00"] else first
    with pytest.raises(DataError, match=said):
        inputs(read, spec, first, cell)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"range": ["2020-01-11", "2020-01-01"], "cycles": ["year"]}, r"d\.range = .*the first before the second"),
        ({"cycles": ["decade"]}, r"d\.cycles = \['decade'\]: a list of some of year, month, week, day"),
        ({"cycles": []}, r"data\.columns\.d = .*dates need a public range = \[first, last\], or cycles"),
        ({"range": ["08:00", "2020-01-01"], "format": "%H:%M"}, r"d\.range = .*two dates or two times"),
        ({"range": ["08:00", "16:00"], "cycles": ["week"]}, r"d\.cycles = .*goes round in a day only"),
        ({"cycles": ["year"], "missing": "soon"}, r"d\.missing = 'soon': a date or a time"),
        ({"cycles": ["year"], "indicator": True}, r"d\.indicator = True: needs missing"),
        ({"cycles": ["year"], "format": 7}, r"d\.format = 7: how dates are written"),
    ],
)
def test_wrong_entries_for_dates(spec, said):
    with pytest.raises(SettingError, match=said):
        column_of("d", spec)


def test_dates_as_toml_writes_them_reach_a_run_s_folder(tmp_path):
    from fedfdp.runs import config

    rows = "".join(f"{i % 2},2020-01-{i % 9 + 1:02},{i % 2}\n" for i in range(40))
    (tmp_path / "t.csv").write_text("who,d,y\n" + rows)
    (tmp_path / "run.toml").write_text(
        'rounds = 1\n[data]\nsource = "t.csv"\nholder = "who"\nlabel = "y"\nclasses = 2\n'
        'columns = { d = { range = [2020-01-01, 2020-01-11], cycles = ["week"] } }\n'
    )
    loaded = config.load(str(tmp_path / "run.toml"))
    again = config.from_dict(loaded.to_dict())
    assert again.fingerprint() == loaded.fingerprint()
    assert again.data.columns["d"]["range"] == ["2020-01-01", "2020-01-11"]
