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
    places = os.pathsep.join([str(ROOT / "src"), "examples/two_inputs", "examples/reviews"])
    environment = {**os.environ, "PYTHONPATH": places, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, *command], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def summary(folder: Path, name: str) -> dict:
    return json.loads((folder / "runs" / name / "summary.json").read_text())


def lines(path: str) -> int:
    return len((ROOT / "examples" / path).read_text().splitlines())


def test_they_are_short():
    assert all(lines(path) <= 20 for path in ("reviews/run.toml", "two_inputs/run.toml"))
    assert all(lines(path) <= 40 for path in ("language_model.py", "segmentation.py", "two_inputs/both.py"))


EMBEDDED = """
import torch, transformers
from encoder import Classifier
texts = ["The film was a delight from start to finish.", "hello world"]
given = transformers.AutoTokenizer.from_pretrained("examples/reviews/model")(texts, padding=True, return_tensors="pt")
model = Classifier().eval()
model.head = torch.nn.Identity()
with torch.no_grad():
    found = model(given["input_ids"], given["attention_mask"]) / 16
print(*found[:, :3].flatten().tolist())
"""
# What the package's own program (EnergeticAI, in JavaScript) gives for these texts: the first three numbers of each.
RIGHT = [0.0097076185, -0.0317526422, -0.0128060840, -0.0514965206, -0.0549251996, -0.0076905619]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="the encoder comes through npm")
def test_reviews_with_adapters_on_public_weights(tmp_path):
    run(tmp_path, "examples/reviews/make.py")
    assert [float(number) for number in run(tmp_path, "-c", EMBEDDED).split()] == pytest.approx(RIGHT, abs=2e-6)
    run(tmp_path, "-m", "fedfdp", "run", "examples/reviews/run.toml", "--out", "runs/reviews")
    found = summary(tmp_path, "reviews")
    assert found["accuracy"] > 0.76  # always one class: 0.53
    assert (found["clients"], found["remark"]) == (5, "public pretraining")
    assert found["epsilon"] <= 4.0
    assert (tmp_path / "runs" / "reviews" / "pretrained" / "adapter_model.safetensors").exists()
    run(tmp_path, "-m", "fedfdp", "report", "runs/reviews", "--out", "page.html")
    assert "public pretraining" in (tmp_path / "page.html").read_text()


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
