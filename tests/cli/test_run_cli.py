import json
import subprocess
import sys
from pathlib import Path

import pytest

QUICK = ("--set", "rounds=3", "--set", "eval_every=1")


def test_json_is_alone_on_stdout_and_equals_the_summary(fedfdp, tmp_path):
    code, out, err = fedfdp("run", "digits", *QUICK, "--out", "here", "--json")
    assert code == 0
    summary = json.loads(out)
    assert {"accuracy", "psi", "worst_accuracy", "epsilon", "delta", "rounds", "seconds"} <= set(summary)
    assert summary == json.loads((tmp_path / "here" / "summary.json").read_text())
    assert summary["rounds"] == 3
    assert 0 < summary["epsilon"] <= 3.52
    assert "round 3/3" in err


def test_a_person_sees_the_result_and_where_it_is_kept(fedfdp, tmp_path):
    code, out, _ = fedfdp("run", "digits", *QUICK)
    assert code == 0
    for text in ("test accuracy", "worst client", "Ψ (test)", "ε = 0.", "accuracy by client", "kept in runs/digits"):
        assert text in out
    fedfdp("run", "digits", *QUICK)
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["digits", "digits-2"]


def test_show_compares_runs(fedfdp, tmp_path):
    fedfdp("run", "digits", *QUICK, "--out", "one")
    fedfdp("run", "digits", *QUICK, "--set", "algorithm.name=fedavg", "--out", "two")
    code, out, _ = fedfdp("show", "one", "two", "--png", "both.png")
    assert code == 0
    assert "fedfdp" in out
    assert "fedavg" in out
    assert (tmp_path / "both.png").stat().st_size > 10_000
    code, out, _ = fedfdp("show", "one", "two", "--json")
    assert set(json.loads(out)) == {"one", "two"}


def test_resume_takes_the_run_as_it_was_started(fedfdp):
    fedfdp("run", "digits", *QUICK, "--out", "done")
    for arguments, message in [
        (("--resume", "done"), "done is finished"),
        (("--resume", "nowhere"), "nowhere is not a run folder"),
        (("digits", "--resume", "done"), "leave out the preset and --out"),
        (("--resume", "done", "--set", "seed=3"), "belongs to another config"),
    ]:
        code, _, err = fedfdp("run", *arguments)
        assert code == 2
        assert message in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("defalt",), "preset = 'defalt': did you mean 'default'?"),
        (("digits", "--set", "privacy.q=2"), "privacy.q = 2.0: a sampling rate from 1e-09 to 1;"),
        (("digits", "--set", "privacy.sigma=-1"), "privacy.sigma = -1.0"),
        (("digits", "--set", "privacy.clip=0"), "privacy.clip = 0.0"),
        (("digits", "--set", "algorithm.lam=-0.5"), "algorithm.lam = -0.5"),
        (("digits", "--set", "algorithm.lamda=1"), "did you mean 'lam'?"),
        (("digits", "--set", "privacy.epsilon=0.001"), "a single round with sigma = 3.09"),
        (("digits", "--set", "data.clients=5000"), "5000"),
        (("digits", "--set", "model.name=paper-cnn"), "needs images of at least 16×16"),
        (("digits", "--set", "model.name=resnet"), "model.name = 'resnet'"),
        (("digits", "--set", "model.arguments={hidden=3}"), "model.arguments"),
        (("digits", "--set", "data.source=mnits"), "mnist"),
        (("digits", "--set", "device=cuda:7"), "device = 'cuda:7'"),
        (("digits", "--set", "device=banana"), "device = 'banana': there is no such device here"),
        (("digits", "--set", "seed=99999999999999999999999999"), "seed = "),
        (("digits", "--set", "threads=100000000"), "threads = 100000000: from 1 to 1024"),
        (("digits", "--set", "algorithm.name=:"), "algorithm.name = ':': cannot be imported"),
        (("digits", "--set", "model.name=os:getcwd"), "makes a str, not a torch.nn.Module"),
        (("digits", "--set", "algorithm.name=qffl", "--set", "algorithm.q_f=5000"), "algorithm.q_f = 5000.0"),
        (("digits", "--set", "privacy.clip=1e300"), "privacy.clip = 1e+300"),
        (("digits", "--set", "privacy.budgets.nobody=1"), "privacy.budgets.nobody = 1.0: no such client"),
        (("digits", "--set", "rounds.x=3"), "rounds = "),
        (("absent.toml",), "cannot be read: No such file"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(fedfdp, tmp_path, arguments, message):
    code, out, err = fedfdp("run", *arguments, "--out", "run")
    assert code == 2
    assert out == ""
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_without_the_data_the_default_trains_on_digits_and_says_so(fedfdp, monkeypatch):
    from fedfdp import data
    from fedfdp.core.errors import DataError

    real = data.load

    def offline(name, **options):
        if name != "digits":
            raise DataError(f"{name} cannot be had")
        return real(name, **options)

    monkeypatch.setattr(data, "load", offline)
    code, out, err = fedfdp("run", *QUICK, "--json")
    assert code == 0
    assert "mnist cannot be had" in err
    assert "training on scikit-learn's digits instead" in err
    assert json.loads(out)["data"].startswith("digits")
    code, _, err = fedfdp("run", "paper-mnist", *QUICK)
    assert code == 2


def test_help_starts_without_torch():
    code = """
import sys
from fedfdp.cli.main import main
sys.argv = ["fedfdp", "--help"]
try:
    main()
except SystemExit:
    pass
sys.exit(bool({"torch", "numpy", "pydantic", "matplotlib", "scipy", "dp_accounting"} & set(sys.modules)))
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_same_bits(tmp_path):
    """Real processes: SIGKILL at some point, resumed, compared with one that was never killed."""
    import time

    command = [str(Path(sys.executable).with_name("fedfdp")), "run"]
    settings = ["digits", "--set", "rounds=300", "--set", "privacy.sigma=none", "--set", "eval_every=10", "--json"]
    whole = subprocess.run([*command, *settings, "--out", "whole"], cwd=tmp_path, capture_output=True, check=True)
    process = subprocess.Popen([*command, *settings, "--out", "cut"], cwd=tmp_path, stderr=subprocess.DEVNULL)
    while not (tmp_path / "cut" / "checkpoint").exists():
        time.sleep(0.01)
    time.sleep(0.3)
    process.kill()
    process.wait()
    assert not (tmp_path / "cut" / "summary.json").exists()
    subprocess.run([*command, "--resume", "cut"], cwd=tmp_path, capture_output=True, check=True)
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "cut")]
    assert models[0] == models[1]
    assert json.loads(whole.stdout)["epsilon"] == json.loads((tmp_path / "cut" / "summary.json").read_text())["epsilon"]


@pytest.mark.slow
def test_an_interrupt_leaves_a_resumable_folder(tmp_path):
    import signal
    import time

    command = [str(Path(sys.executable).with_name("fedfdp")), "run"]
    process = subprocess.Popen(
        [*command, "digits", "--set", "rounds=2000", "--set", "privacy.epsilon=none", "--out", "cut"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where tests run in the background
    )
    while not (tmp_path / "cut" / "ledger.jsonl").exists():
        time.sleep(0.05)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "continue with: fedfdp run --resume cut" in err
    subprocess.run([*command, "--resume", "cut"], cwd=tmp_path, capture_output=True, check=True)
    assert json.loads((tmp_path / "cut" / "summary.json").read_text())["rounds"] == 2000
