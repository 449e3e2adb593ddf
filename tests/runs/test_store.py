"""A sweep does each run once, goes on with what was begun, and tells what failed."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from fedfdp.core.errors import DataError, RunError
from fedfdp.data.files.content import content_of
from fedfdp.runs import config as configs
from fedfdp.runs.build import federation_of, fitted, launch, pinned, stored_config
from fedfdp.runs.folder import RunFolder
from fedfdp.runs.store import Store, find_runs
from fedfdp.runs.sweep import RunProgress, completed, sweep
from fedfdp.runs.tables import write_table
from fedfdp.runs.tracking import check_tracking, flat, recalls, tracker
from fedfdp.tuning.grid import Candidate
from fedfdp.tuning.halving import tune

SETTINGS = ["data.clients=4", "rounds=4", "eval_every=2", "model.name=linear", "algorithm.lr=1.0"]


def digits(*overrides: str, seed: int = 0) -> configs.Config:
    return replace(configs.load("digits", [*SETTINGS, *overrides]).resolved(), seed=seed)


def test_a_runs_folder_is_its_name_and_the_start_of_its_hash(tmp_path):
    config, store = digits(), Store(tmp_path)
    assert store.path(config) == tmp_path / f"digits-{config.fingerprint()[:10]}"
    assert store.path(replace(config, eval_every=1, threads=1)) == store.path(config)
    assert store.path(replace(config, seed=1)) != store.path(config)


def test_a_finished_run_is_not_run_again(tmp_path):
    store, seen = Store(tmp_path), []
    run = store.complete(digits(), seen.append)
    assert len(seen) == 4
    before = {path: path.stat().st_mtime_ns for path in run.path.iterdir()}
    assert store.complete(digits(), seen.append).summary() == run.summary()
    assert len(seen) == 4
    assert before == {path: path.stat().st_mtime_ns for path in run.path.iterdir()}


def test_a_half_done_run_goes_on_to_the_same_bits(tmp_path):
    config, whole, cut = digits(), Store(tmp_path / "whole"), Store(tmp_path / "cut")

    def stop(update):
        if update.step.round == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cut.complete(config, stop)
    assert not cut.finished(config)
    rounds = []
    cut.complete(config, lambda update: rounds.append(update.step.round))
    assert rounds == [3, 4]
    whole.complete(config)
    models = [(store.path(config) / "model.safetensors").read_bytes() for store in (whole, cut)]
    assert models[0] == models[1]


def test_what_a_kill_left_before_the_run_began_is_cleared_and_nothing_else(tmp_path):
    config, store = digits(), Store(tmp_path)
    path = store.path(config)
    path.mkdir(parents=True)
    (path / "config.toml").write_text("torn")
    (path / ".run.json.123").write_text("torn")
    assert store.complete(config).finished
    other = digits(seed=1)
    store.path(other).mkdir()
    (store.path(other) / "thesis.tex").write_text("years of work")
    with pytest.raises(RunError, match=r"thesis\.tex"):
        store.complete(other)
    assert (store.path(other) / "thesis.tex").read_text() == "years of work"


@pytest.fixture
def table(tmp_path):
    """A run on a file of one's own: its config, and the file."""
    rng = random.Random(0)
    rows = [f"{town},{rng.randint(20, 90)},{rng.choice(['no', 'yes'])}" for town in ("oslo", "rome") for _ in range(60)]
    file = tmp_path / "people.csv"
    file.write_text("town,age,ill\n" + "\n".join(rows) + "\n")
    (tmp_path / "run.toml").write_text(
        'rounds = 4\neval_every = 2\nmodel = { name = "linear" }\nprivacy = { epsilon = 3.0 }\n[data]\n'
        'source = "people.csv"\nholder = "town"\nlabel = "ill"\nclasses = ["no", "yes"]\ncolumns = { age = [0, 110] }\n'
    )
    config = configs.load(str(tmp_path / "run.toml"))
    return fitted(config, federation_of(config)), file


def edit(file):
    """Another record, in as many bytes and of the same date."""
    when, text = file.stat(), file.read_text()
    file.write_text(text.replace("yes\n", "no \n", 1))
    os.utime(file, ns=(when.st_atime_ns, when.st_mtime_ns))
    assert file.stat().st_size == when.st_size


def test_an_edited_file_is_another_run_and_the_old_one_stays(table, tmp_path):
    config, file = table
    store, before = Store(tmp_path / "runs"), file.read_bytes()
    first = store.complete(config)
    assert store.path(config) == first.path
    assert first.config()["data"]["content"] == hashlib.sha256(before).hexdigest()
    edit(file)
    assert not store.finished(config)
    second = store.complete(config)
    assert second.path != first.path
    assert second.identity()["data"] != first.identity()["data"]
    file.write_bytes(before)
    assert store.complete(config).path == first.path
    assert len(store.runs()) == 2


def test_tuning_on_an_edited_file_starts_anew(table, tmp_path):
    config, file = table
    tried = [Candidate(("algorithm.lr=1",), replace(config, name="tune"))]
    for runs in (3, 3, 6):  # a seed each, and again on the edited file
        if runs == 6:
            edit(file)
        tune(tried, tmp_path / "tuned", jobs=1)
        assert len(Store(tmp_path / "tuned").runs()) == runs


def test_resuming_on_an_edited_file_is_refused_in_one_line(table, tmp_path):
    config, file = table

    def stop(update):
        raise KeyboardInterrupt

    for out, run in (
        (tmp_path / "plain", lambda path: launch(config, out=path, on_update=stop)),
        (tmp_path / "stored", lambda path: launch(*pinned([config]), out=path, on_update=stop)),
    ):
        with pytest.raises(KeyboardInterrupt):
            run(out)
    edit(file)
    for out, error, message in (
        (
            "plain",
            RunError,
            r"plain was started on other records: their fingerprint was \w{12}, now it is \w{12}; put ",
        ),
        ("stored", DataError, r"people\.csv: changed: data\.content is \w{12}, now it is \w{12}; put back what "),
    ):
        folder = RunFolder.find(tmp_path / out)
        with pytest.raises(error, match=message) as caught:
            launch(stored_config(folder, []), out=folder.path, resume=True)
        assert "\n" not in str(caught.value)


def test_the_content_of_a_folder_is_its_files_and_their_names(tmp_path):
    for name in ("a/0/1.png", "a/1/1.png", "b/0/1.png"):
        (tmp_path / "all" / name).parent.mkdir(parents=True)
        (tmp_path / "all" / name).write_bytes(name.encode())
    seen = {content_of(tmp_path / "all")}
    (tmp_path / "all" / "a" / "1").rename(tmp_path / "all" / "a" / "2")  # another class
    seen.add(content_of(tmp_path / "all"))
    (tmp_path / "all" / "b").rename(tmp_path / "all" / "c")  # another holder
    seen.add(content_of(tmp_path / "all"))
    (tmp_path / "all" / "a" / "0" / "1.png").write_bytes(b"A/0/1.png")
    seen.add(content_of(tmp_path / "all"))
    assert len(seen) == 4
    (tmp_path / "all" / ".DS_Store").write_text("not read")
    assert content_of(tmp_path / "all") in seen
    (tmp_path / "all" / "a" / "0" / "link.png").symlink_to("/etc/hostname")
    with pytest.raises(DataError, match=r"link\.png: leads outside of"):
        content_of(tmp_path / "all")


def test_a_sweep_runs_what_is_missing_and_goes_on_after_a_failure(tmp_path):
    store, words = Store(tmp_path), []
    done, fresh, bad = digits(), digits(seed=1), digits("data.folder='nowhere'", "data.source='mnist'")
    launch(done, out=store.path(done))
    failed = sweep([done, fresh, fresh, bad], store, jobs=2, watch=words.append)
    assert list(failed) == [store.path(bad)]
    assert "nowhere" in failed[store.path(bad)]
    assert store.finished(fresh)
    states = {name: [w.state for w in words if w.run == store.path(c).name and w.state != "running"]
              for name, c in (("done", done), ("fresh", fresh), ("bad", bad))}  # fmt: skip
    assert states == {"done": ["found"], "fresh": ["started", "done"], "bad": ["started", "failed"]}
    last = next(progress for progress in words if progress.state == "done")
    assert (last.round, last.measures["accuracy"]) == (4, store.run(fresh).summary()["accuracy"])
    assert store.run(fresh).summary()["threads"] == 1


def test_a_run_of_a_sweep_that_diverges_is_done_at_once_and_when_it_is_found_again(tmp_path):
    store, wild = Store(tmp_path), digits("algorithm.lr=1e6", "privacy.clip=1e3")
    first = completed(wild, store, None, lambda said: None)
    again = completed(wild, store, None, lambda said: None)
    assert (first.state, store.run(wild).live()["state"]) == ("done", "diverged")
    assert (again.state, again.measures) == (first.state, first.measures)


def test_runs_are_found_by_folder_or_below_one(tmp_path):
    run = Store(tmp_path / "deep").complete(digits())
    assert [r.path for r in find_runs([tmp_path])] == [run.path]
    assert [r.path for r in find_runs([run.path])] == [run.path]
    with pytest.raises(RunError, match="holds no run"):
        find_runs([tmp_path / "nowhere"])


def test_export_has_a_row_for_each_evaluation(tmp_path):
    import csv

    run = Store(tmp_path).complete(digits())
    assert write_table([run], tmp_path / "all.csv", form="csv") == 2
    with open(tmp_path / "all.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["round"] for row in rows] == ["2", "4"]
    assert float(rows[1]["accuracy"]) == run.summary()["accuracy"]
    assert rows[0]["config.privacy.sigma"] == "3.09"


def test_optional_libraries_are_asked_for_by_name(tmp_path, monkeypatch):
    for module in ("pandas", "pyarrow", "mlflow", "torch.utils.tensorboard"):
        monkeypatch.setitem(sys.modules, module, None)  # an import of None fails
    run = Store(tmp_path).complete(digits())
    with pytest.raises(Exception, match=r"needs pyarrow.*pip install 'fedfdp\[parquet\]'"):
        write_table([run], tmp_path / "all.parquet", form="parquet")
    for kind in ("mlflow", "tensorboard"):
        with pytest.raises(Exception, match=rf"{kind} is not installed; pip install 'fedfdp\[{kind}\]'"):
            check_tracking(kind)
    with pytest.raises(Exception, match="did you mean 'tensorboard'"):
        check_tracking("tensorbord")


def test_measures_go_to_the_tracker_at_every_evaluation(tmp_path, monkeypatch):
    import types

    logged: list[tuple[str, float, int]] = []

    class SummaryWriter:
        def __init__(self, folder: str) -> None:
            assert folder == str(tmp_path / "tensorboard" / "mine")

        def add_scalar(self, name: str, value: float, step: int) -> None:
            logged.append((name, value, step))

        def __enter__(self):
            return self

        def __exit__(self, *error: object) -> None:
            logged.append(("closed", 0.0, 0))

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", types.SimpleNamespace(SummaryWriter=SummaryWriter))
    config = digits()
    with tracker("tensorboard", tmp_path, "mine", config.to_dict()) as track:
        run = Store(tmp_path).complete(config, track)
    accuracies = [(name, value, step) for name, value, step in logged if name == "accuracy"]
    assert accuracies == [("accuracy", entry["accuracy"], entry["round"]) for entry in run.metrics()]
    assert [step for _, _, step in accuracies] == [2, 4]
    recalls = {name: value for name, value, step in logged if name.startswith("recall/") and step == 4}
    classes = run.summary()["classes"]
    assert recalls == {
        f"recall/{k}": v for k, v in zip(classes["names"], classes["recall"], strict=True) if v is not None
    }
    assert ("balanced_accuracy", run.summary()["balanced_accuracy"], 4) in logged
    assert logged[-1][0] == "closed"


def test_class_names_become_names_that_trackers_take():
    entry = {"classes": {"names": ["a/b: c", "né"], "recall": [0.5, None]}}
    assert recalls(entry) == {"recall/a_b_ c": 0.5}
    assert recalls({"accuracy": 1.0}) == {}


def test_flat_settings():
    assert flat({"a": 1, "b": {"c": {"d": 2}, "e": 3}}) == {"a": 1, "b.c.d": 2, "b.e": 3}
    own = {"data": {"source": "a.csv", "content": "c0ffee"}}
    assert flat(own) == {"data.source": "a.csv"}  # the hash of the files is not for showing around


@pytest.mark.slow
def test_a_sweep_killed_at_any_moment_gives_the_same_table(tmp_path):
    """SIGKILL to the sweep alone, again and again; its workers notice and end, and the table is that of one sweep."""
    command = [sys.executable, "-c", "from fedfdp.cli.main import main; main()", "reproduce", "table3"]
    command += [
        "--scale",
        "smoke",
        "--dataset",
        "mnist",
        "--methods",
        "fedavg,qffl,fedfdp",
        "--seeds",
        "2",
        "--jobs",
        "2",
    ]
    kept = subprocess.PIPE
    whole = subprocess.run([*command, "--out", "whole", "--json"], cwd=tmp_path, stdout=kept, stderr=kept, check=True)
    for delay in (4.0, 7.0, 8.0, 9.0, 10.0):
        process = subprocess.Popen([*command, "--out", "cut"], cwd=tmp_path, stdout=kept, stderr=subprocess.DEVNULL)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
    again = subprocess.run([*command, "--out", "cut", "--json"], cwd=tmp_path, stdout=kept, stderr=kept, check=True)

    def numbers(document: bytes) -> list[dict[str, object]]:
        runs = [run for cell in json.loads(document)["cells"] for run in cell["runs"]]
        return [{name: value for name, value in run.items() if name != "seconds"} for run in runs]

    assert numbers(again.stdout) == numbers(whole.stdout)
    assert len([run for run in Store(tmp_path / "cut").runs() if isinstance(run, RunFolder) and run.finished]) == 6


def test_a_word_says_how_far_a_run_is():
    assert RunProgress("a", "started") == RunProgress("a", "started", 0, 0, {}, "")
