"""A large table is read and trained on in little more memory than its own tensor takes: measured in a new process."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

ROWS, COLUMNS = 1_000_000, 30

MEASURE = """
import resource, sys
import pyarrow.csv, pyarrow.parquet
from fedfdp import config
from fedfdp.runs.launch import federation_of, launch

peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
run = config.load(sys.argv[1]).resolved()
before = peak()
said = []
federation = federation_of(run, progress=said.append)
read = peak() - before
result = launch(run, federation=federation)
looks = sum(" s left" in line for line in said)
print(read, peak() - before, federation.x.numel() * 4, result.summary["records"], looks)
"""

RUN = """
rounds = 2
[data]
source = "{name}"
holder = "bank"
label = "bad"
classes = 2
columns = {{ "c*" = [-4, 4] }}
[model]
name = "linear"
[privacy]
epsilon = 3.0
q = 0.01
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_a_million_rows_take_at_most_three_times_their_own_size(tmp_path, name):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    columns = {f"c{i}": values[:, i] for i in range(COLUMNS)}
    who = np.array(["a", "b", "c"])[rng.integers(0, 3, ROWS)]
    table = pa.table({**columns, "bank": who, "bad": (values[:, 0] > 0).astype(np.int8)})
    write = pq.write_table if name.endswith("parquet") else pyarrow.csv.write_csv
    write(table, tmp_path / name)
    (tmp_path / "run.toml").write_text(RUN.format(name=name))
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path / "run.toml")], capture_output=True, text=True, check=True
    )
    read, trained, data, records, said = map(int, done.stdout.split())
    assert data == ROWS * COLUMNS * 4
    assert records == sum(count - -(-count // 4) for count in np.unique(who, return_counts=True)[1])  # all but the test
    assert read <= trained <= 3 * data
    assert said >= 1
