"""A large table is read and trained on in little more memory than its own tensor takes: measured in a new process."""

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

ROWS, COLUMNS = int(os.environ.get("FEDFDP_TEST_ROWS", "1000000")), 30

MEASURE = """
import re, sys
import pyarrow.csv, pyarrow.parquet
from fedfdp.runs import config
from fedfdp.runs.build import federation_of, launch

# not ru_maxrss, which begins with what the parent process took
peak = lambda: 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
launch(config.load("digits", ["rounds=1"]))  # loads the libraries of a run, which take some 100 MB
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
[algorithm]
lr = 1.0
[privacy]
epsilon = 3.0
delta = 1e-6
q = 0.01
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="reads Linux's account of memory")
@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_a_large_table_takes_at_most_three_times_its_own_size(tmp_path, name):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    columns = {f"c{i}": values[:, i] for i in range(COLUMNS)}
    who = np.array(["a", "b", "c"])[rng.integers(0, 3, ROWS)]
    table = pa.table({**columns, "bank": who, "bad": (values[:, 0] > 0).astype(np.int8)})
    write = pq.write_table if name.endswith("parquet") else pyarrow.csv.write_csv
    write(table, tmp_path / name)
    (tmp_path / "run.toml").write_text(RUN.format(name=name))
    done = subprocess.run([sys.executable, "-c", MEASURE, str(tmp_path / "run.toml")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    read, trained, data, records, said = map(int, done.stdout.split())
    print(f"{name}: tensor {data / 1e6:.0f} MB, peak when read {read / 1e6:.0f} MB, trained {trained / 1e6:.0f} MB")
    assert data == ROWS * COLUMNS * 4
    assert records == sum(count - -(-count // 4) for count in np.unique(who, return_counts=True)[1])  # all but the test
    assert data < read <= trained <= 3 * data
    assert said >= (name == "t.csv")  # the other is read in less time than one line of progress takes
