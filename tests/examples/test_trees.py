"""The examples with several inputs, text, words and pixels, from the first line to the result."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(folder: Path, *command: str) -> str:
    """What a command in a copy of the examples prints."""
    if not (folder / "examples").exists():
        shutil.copytree(ROOT / "examples", folder / "examples")
    places = os.pathsep.join([str(ROOT / "src"), "examples/two_inputs"])
    environment = {**os.environ, "PYTHONPATH": places, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def summary(folder: Path, name: str) -> dict:
    return json.loads((folder / "runs" / name / "summary.json").read_text())


def lines(path: str) -> int:
    return len((ROOT / "examples" / path).read_text().splitlines())


def test_they_are_short():
    assert all(lines(path) <= 20 for path in ("notes/run.toml", "two_inputs/run.toml"))
    assert all(lines(path) <= 40 for path in ("language_model.py", "segmentation.py", "two_inputs/both.py"))


@pytest.mark.slow
def test_notes_with_adapters(tmp_path):
    run(tmp_path, "examples/notes/make.py")
    run(tmp_path, "-m", "fedfdp", "run", "examples/notes/run.toml", "--out", "runs/notes")
    found = summary(tmp_path, "notes")
    assert found["accuracy"] > 0.8
    assert found["epsilon"] <= 4.0
    assert (tmp_path / "runs" / "notes" / "pretrained" / "adapter_model.safetensors").exists()


@pytest.mark.slow
def test_a_language_model(tmp_path):
    run(tmp_path, "examples/language_model.py")
    found = summary(tmp_path, "letters")
    assert found["perplexity"] < 3  # of 7 letters
    assert found["epsilon"] <= 4.0


@pytest.mark.slow
def test_segmentation(tmp_path):
    run(tmp_path, "examples/segmentation.py")
    found = summary(tmp_path, "squares")
    assert found["iou"] > 0.7
    assert found["epsilon"] <= 4.0


@pytest.mark.slow
def test_two_inputs_across_processes(tmp_path):
    run(tmp_path, "examples/two_inputs/both.py")
    run(tmp_path, "-m", "fedfdp", "deploy", "local", "examples/two_inputs/run.toml", "--out", "runs/two")
    found = summary(tmp_path, "two")
    assert found["accuracy"] > 0.75
    assert [leaf[0] for leaf in found["task"]["inputs"]] == ["picture", "table"]
