"""Every wrong table is one line that names the file, the row or column, and what to do."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fedfdp.core.errors import DataError, FedFDPError, SettingError
from fedfdp.data.files import paths
from fedfdp.data.files.read import read_records
from fedfdp.data.schema import Facts
from own_files import CSV, facts


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (CSV.replace("age", "years", 1), r"no column 'age' as data.columns says; .*known: .*years"),
        (CSV.replace("back", "return"), r"no column 'back' as data.label says; .*known: .*return"),
        (CSV.replace("site", "place"), r"no column 'site' as data.holder says; .*known: .*place"),
        (CSV.replace("e,a", "e,town,a").replace("th,", "th,X,"), r"column 'town': neither a range nor categories"),
        (CSV.replace("m,60", "x,60"), r"row 3, column 'sex': no such category as 'x'; known: f, m; add it"),
        (CSV.replace("65", "old"), r"row 3, column 'age': 'old' is not a number; correct it, or list categories"),
        (CSV.replace("60,no", "60,perhaps"), r"row 3, column 'back': label 'perhaps' is no class; known: no, yes"),
        (CSV.replace("60,no", "60,"), r"row 3, column 'back': is empty; fill it in or remove the row"),
        (CSV.replace("110", ""), r"row 2, column 'age': is missing; set missing = a public value"),
        (CSV.replace("110", "nan"), r"row 2, column 'age': is missing"),
        (CSV.replace("110", "inf"), r"row 2, column 'age': is infinite; correct it"),
        (CSV.replace("110,m", "110,"), r"row 2, column 'sex': is empty; set its `missing`"),
        (CSV.replace("south", ""), r"row 3, column 'site': is empty; every row needs its holder"),
        (CSV.replace("sex", "age", 1), r"column 'age': there are two of this name; rename one"),
        ("," + CSV.replace("\n", "\n0,"), r"column 1: has no name in the header; name it, or save without an index"),
        (CSV.replace("0,yes", "0,yes,1"), r"row 2: 6 cells, the header has 5; quote cells"),
        (CSV.replace("20,f,", "20,"), r"row 1: 4 cells, the header has 5"),
        (CSV.splitlines()[0] + "\n", r"an empty holder: no records"),
        (CSV.splitlines()[0], r"an empty holder: no records"),
        (CSV.replace("110,m", "110,é").encode("latin-1"), r"row 2: not UTF-8; save it as UTF-8"),
        (CSV.encode("utf-16"), r"not UTF-8 text .*save it as UTF-8"),
        (CSV.replace("age", "äge", 1).encode("latin-1"), r"header: not UTF-8 .*save it as UTF-8"),
        (b"", r"empty \(0 bytes\); write the file again"),
    ],
)
def test_wrong_csv(read, tmp_path, text, said):
    with pytest.raises(DataError, match=said) as error:
        read(text)
    assert str(error.value).startswith(str(tmp_path / "holders.csv"))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("about", "said"),
    [
        (facts(holder="sites"), r"no column 'sites' as data.holder says; did you mean 'site'"),
        (facts(label="readmitted", ignore=("back",)), r"no column 'readmitted' as data.label says"),
        (facts(test="part"), r"no column 'part' as data.test says"),
        (Facts(holder="site", label="back", classes=2, ignore=("age", "sex", "stay")), "no column is left to learn"),
        (facts(label=None, ignore=("back",)), r"data.label = None: which column of holders.csv is to be predicted"),
        (facts(classes=None), r"data.label = 'back': what may occur in it has to be public; list the classes"),
        (facts(test="sex", columns={"age": [0, 110], "stay": [0, 60]}), r"row 1, column 'sex': says neither train nor"),
        (facts(columns={"age": "private", "stay": [0, 60], "sex": ["f", "m"]}), "none was estimated here"),
    ],
)
def test_facts_that_do_not_fit_the_file(read, about, said):
    with pytest.raises(FedFDPError, match=said) as error:
        read(CSV, about)
    assert "\n" not in str(error.value)


def test_the_error_for_a_missing_range_says_why_and_what_to_do(read):
    with pytest.raises(DataError) as error:
        read(CSV, facts(columns={"stay": [0, 60], "sex": ["f", "m"]}))
    text = str(error.value)
    assert "column 'age'" in text
    assert "a range read from the data would not be private" in text
    assert "'age' = [low, high] from public knowledge" in text
    assert "'age' = \"private\"" in text


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"columns": {"age": [110, 0]}}, r"data.columns.age.range = .*low below high"),
        ({"columns": {"age": [0, float("inf")]}}, r"data.columns.age"),
        ({"columns": {"age": 7}}, r"data.columns.age = 7: a range \[low, high\], a list of categories"),
        ({"columns": {"age": {"rnge": [0, 1]}}}, r"data.columns.age.rnge = .*did you mean 'range'"),
        ({"columns": {"age": {"missing": 3}}}, r"data.columns.age = .*needs a public range"),
        (
            {"columns": {"age": {"range": [0, 1], "indicator": True}}},
            r"data.columns.age.indicator = True: needs missing",
        ),
        ({"columns": {"sex": ["f", "f"]}}, r"data.columns.sex.categories = .*different"),
        ({"columns": {"sex": {"categories": ["f", "m"], "missing": "x"}}}, r"data.columns.sex.missing = 'x'"),
        ({"classes": ("a", "a")}, r"data.classes = .*different names"),
        ({"classes": 1}, r"data.classes = 1: 2 or more"),
        ({"classes": 2, "target": (0.0, 1.0)}, r"data.target = .*given beside data.classes"),
        ({"target": (1.0, 1.0)}, r"data.target = .*low below high"),
    ],
)
def test_wrong_facts_are_refused_before_a_file_is_read(section, said):
    with pytest.raises(SettingError, match=said):
        Facts(**section)


def test_wrong_parquet(tmp_path):
    whole = tmp_path / "t.parquet"
    pq.write_table(pa.table({"v": ["a", "b"], "w": [[1], [2]], "y": [0, 1]}), whole)
    about = Facts(label="y", classes=2, columns={"v": [0, 1]}, ignore=("w",))
    with pytest.raises(DataError, match=r"t.parquet, column 'v': holds string where a range needs numbers; list"):
        read_records(about, whole)
    with pytest.raises(DataError, match=r"column 'w': holds list"):
        read_records(Facts(label="y", classes=2, columns={"w": [0, 1]}, ignore=("v",)), whole)
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(whole.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"cut.parquet: not a whole Parquet file .*copy or write it again"):
        read_records(about, cut)
    scratched = bytearray(whole.read_bytes())
    scratched[4:60] = b"\xff" * 56
    cut.write_bytes(bytes(scratched))
    with pytest.raises(DataError, match=r"cut.parquet: not a whole Parquet file"):
        read_records(Facts(label="y", classes=2, columns={"v": ["a", "b"]}, ignore=("w",)), cut)


def test_files_that_are_none(tmp_path):
    with pytest.raises(DataError, match=r"absent.csv: no such file; check data.source"):
        read_records(facts(), tmp_path / "absent.csv")
    (tmp_path / "t.xlsx").write_bytes(b"PK")
    with pytest.raises(DataError, match=r"t.xlsx: files of kind '.xlsx' are not read; give .csv"):
        read_records(facts(), tmp_path / "t.xlsx")
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(DataError, match=r"pipe.csv: neither a file nor a folder"):
        read_records(facts(), tmp_path / "pipe.csv")


def test_a_table_that_does_not_fit_in_memory_is_refused_before_it_is_read(read, monkeypatch):
    monkeypatch.setattr(paths, "most_bytes", lambda: 40)  # three records of four float32 inputs take 48
    with pytest.raises(DataError, match=r"3 records would take 0.0 MB in memory, at most 0.0 MB fit"):
        read(CSV)


def test_a_pattern_does_not_mix_columns_of_different_names(tmp_path):
    """Two files with as many columns of the pattern, but not the same: one's values would be taken for another's."""
    (tmp_path / "a.csv").write_text("lab_x,lab_y,ill\n1,100,0\n2,100,1\n")
    (tmp_path / "b.csv").write_text("lab_x,lab_z,ill\n1,5,0\n2,5,1\n")
    with pytest.raises(DataError, match=r"b.csv: column 'lab_z' is not in a.csv; give every holder the same"):
        read_records(Facts(label="ill", classes=2, columns={"lab_*": [0, 100]}), tmp_path)
