"""What counts as missing, decimal commas, separators and packed files: the same numbers from every form."""

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from fedfdp.core.errors import DataError, SettingError
from fedfdp.data.files import text_table
from fedfdp.data.files.read import read_records
from fedfdp.data.schema import Facts
from own_files import CSV, facts


def test_none_is_a_class_where_it_is_listed(read):
    text = "v,kind,y\n1,None,None\n2,NA,mild\n3,a,None\n"
    columns = {"v": [0, 4], "kind": {"categories": ["a", "NA"], "other": True, "missing": "other"}}
    got = read(text, Facts(label="y", classes=("None", "mild"), columns=columns))
    assert got.y.tolist() == [0, 1, 0]
    # NA is listed, so it is a category; None is not, so it is missing and taken as the fill-in value
    assert got.x[:, 1:].tolist() == [[0, 0, 1], [0, 1, 0], [1, 0, 0]]


def test_a_word_that_means_missing_is_named_in_the_error(read):
    with pytest.raises(DataError, match=r"row 1, column 'y': is 'None', which counts as missing \(data.missing\)"):
        read("v,y\n1,None\n2,mild\n", Facts(label="y", classes=("low", "mild"), columns={"v": [0, 4]}))
    with pytest.raises(DataError, match=r"row 3, column 'site': is 'NA', which counts as missing"):
        read(CSV.replace("south", "NA"))


def test_missing_texts_are_a_setting(tmp_path):
    about = Facts(
        label="y", classes=2, missing=("-", "999"), columns={"v": {"range": [0, 4], "missing": 2, "indicator": True}}
    )
    (tmp_path / "t.csv").write_text("v,y\n-,0\n999,1\n4,0\n,1\n")
    filled = [[0, 1], [0, 1], [1, 0], [0, 1]]  # 2 is the middle of [0, 4]; an empty cell is always missing
    assert read_records(about, tmp_path / "t.csv").x.tolist() == filled
    names = Facts(label="y", classes=2, missing=(), columns={"v": ["NA", "b"]})
    (tmp_path / "t.csv").write_text("v,y\nNA,0\nb,1\n")
    assert read_records(names, tmp_path / "t.csv").x.tolist() == [[1, 0], [0, 1]]
    (tmp_path / "t.csv").write_text("site,v,y\nNA,1,0\nUS,2,1\n")
    sites = Facts(holder="site", label="y", classes=2, missing=(), columns={"v": [0, 4]})
    assert read_records(sites, tmp_path / "t.csv").holders == ("NA", "US")
    pq.write_table(pa.table({"v": ["-", "b"], "y": [0, 1]}), tmp_path / "t.parquet")
    either = Facts(label="y", classes=2, missing=("-",), columns={"v": {"categories": ["a", "b"], "missing": "a"}})
    assert read_records(either, tmp_path / "t.parquet").x.tolist() == [[1, 0], [0, 1]]


def test_rows_without_a_label_are_left_out_where_that_is_asked_for(read):
    text = CSV.replace("0,yes", "0,").replace("60,no", "60,perhaps")
    with pytest.raises(DataError, match=r"row 3, column 'back': label 'perhaps' is no class"):  # still counted as row 3
        read(text, facts(unlabelled="skip"))
    got = read(CSV.replace("0,yes", "0,"), facts(unlabelled="skip"))
    assert (got.y.tolist(), got.owner.tolist(), len(got.x)) == ([0, 0], [0, 1], 2)
    number = Facts(label="y", target=(0.0, 4.0), unlabelled="skip", columns={"v": [0, 4]})
    assert read("v,y\n1,\n2,3\n3,NA\n4,4\n", number).y.tolist() == [0.5, 1.0]


@pytest.mark.parametrize("mark", [";", "|", "\t"])
def test_decimal_commas_are_found_by_themselves(read, mark):
    plain = "site,age,sex,stay,back\nnorth,20.25,f,1.5,no\nnorth,110,m,0,yes\nsouth,65,m,6e1,no\n"
    comma = plain.replace(",", mark).replace(".", ",")
    assert torch.equal(read(comma).x, read(plain).x)
    assert torch.equal(read(comma, facts(decimal=",")).x, read(plain).x)


def test_a_decimal_comma_in_quotes_can_be_declared(read):
    text = CSV.replace("1.5", '"1,5"')
    with pytest.raises(DataError, match=r"row 1, column 'stay': '1,5' is not a number; .*data\.decimal"):
        read(text)
    assert torch.equal(read(text, facts(decimal=",")).x, read(CSV).x)


def test_thousands_are_not_taken_for_decimals(read):
    text = "v;y\n1,234;0\n12;1\n"
    about = Facts(label="y", classes=2, columns={"v": [0, 2000]})
    with pytest.raises(SettingError, match=r"data\.decimal = None: .*'1,234' in column 'v': are these thousands\?"):
        read(text, about)
    got = read(text, Facts(label="y", classes=2, columns={"v": [0, 2]}, decimal=","))
    assert got.x[:, 0].tolist() == pytest.approx([1.234 - 1, 1.0])
    with pytest.raises(DataError, match=r"row 1, column 'v': '1,5' is not a number"):  # both marks: no comma is meant
        read("v;y\n1,5;0\n1.5;1\n", about)


def test_a_separator_inside_quotes_is_none(read):
    text = '"a, b, or c";v;y\n1;2;0\n3;4;1\n'
    about = Facts(label="y", classes=2, columns={"a, b, or c": [0, 4], "v": [0, 4]})
    assert read(text, about).x.tolist() == [[-0.5, 0.0], [0.5, 1.0]]


@pytest.mark.parametrize("name", ["t.csv.gz", "t.psv.gz", "t.txt", "t.psv", "t.TSV.gz"])
def test_packed_files_and_other_endings(tmp_path, read, name, monkeypatch):
    monkeypatch.setattr(text_table, "BLOCK", 64)
    mark = "|" if "psv" in name else ","
    content = CSV.replace(",", mark).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    got = read_records(facts(), tmp_path / name)
    assert torch.equal(got.x, read(CSV).x)


def test_a_folder_of_packed_tables_is_named_by_holders(tmp_path):
    lines = [line.split(",", 1)[1] for line in CSV.splitlines()]
    for name, rows in ("north", lines[1:3]), ("south.east", lines[3:]):
        (tmp_path / f"{name}.csv.gz").write_bytes(gzip.compress("\n".join([lines[0], *rows]).encode()))
    assert read_records(facts(holder=None), tmp_path).holders == ("north", "south.east")


def test_a_damaged_packed_file_is_one_line(tmp_path):
    whole = gzip.compress(CSV.encode() * 50)
    (tmp_path / "cut.csv.gz").write_bytes(whole[:-30])
    (tmp_path / "none.csv.gz").write_bytes(CSV.encode())
    scratched = bytearray(whole)
    scratched[-6] ^= 255
    (tmp_path / "scratched.csv.gz").write_bytes(bytes(scratched))
    for name in ("cut", "none", "scratched"):
        with pytest.raises(DataError, match=rf"{name}.csv.gz: not a whole gzip file .*copy or write it again"):
            read_records(facts(), tmp_path / f"{name}.csv.gz")
