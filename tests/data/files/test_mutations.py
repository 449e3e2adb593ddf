"""Whatever happens to a file, reading it gives records or one line: never another error, never a hang."""

import gzip
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from fedfdp.core.errors import FedFDPError
from fedfdp.data.files.read import read_inputs, read_records
from fedfdp.data.schema import Facts
from own_files import CSV, facts


def parquet():
    columns = list(zip(*(line.split(",") for line in CSV.splitlines()), strict=True))
    table = {name: list(values) for name, *values in columns}
    table |= {"age": [20, 110, 65], "stay": [1.5, 0.0, 60.0]}
    pq.write_table(pa.table(table), out := io.BytesIO())
    return out.getvalue()


def archive():
    np.savez_compressed(out := io.BytesIO(), x=np.arange(12.0).reshape(6, 2), y=np.array([0, 1, 0, 1, 2, 0]))
    return out.getvalue()


def image():
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(out := io.BytesIO(), "PNG")
    return out.getvalue()


FILES = {
    "t.csv": (CSV.encode(), lambda path: read_records(facts(), path)),
    "t.csv.gz": (gzip.compress(CSV.encode()), lambda path: read_records(facts(), path)),
    "t.parquet": (parquet(), lambda path: read_records(facts(), path)),
    "t.npz": (archive(), lambda path: read_records(Facts(classes=3), path)),
    "t.png": (image(), lambda path: read_inputs(Facts(), path.parent)),
}


@pytest.mark.parametrize("name", FILES)
@given(data=st.data())
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_spoilt_file_is_read_or_refused_in_one_line(tmp_path, name, data):
    content, read = FILES[name]
    spoilt = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(spoilt) - 1))
        change = data.draw(st.sampled_from(["byte", "cut", "double", "insert"]))
        if change == "byte":
            spoilt[at] = data.draw(st.integers(0, 255))
        elif change == "cut":
            del spoilt[max(at, 1) :]
        elif change == "double":
            spoilt[at:at] = spoilt[at : at + 40]
        else:
            spoilt[at:at] = data.draw(st.binary(min_size=1, max_size=8))
    (tmp_path / name).write_bytes(bytes(spoilt))
    said = _refusal(read, tmp_path / name)
    assert said is None or str(tmp_path) in said or "data." in said
    assert said is None or "\n" not in said


def _refusal(read, path):
    try:
        read(path)
    except FedFDPError as error:
        return str(error)
    return None
