"""deploy/: units, container and compose file, checked as far as that goes without starting them."""

import re
import shlex
import shutil
import subprocess
import sys

import pytest
import yaml

from docs_blocks import ROOT, Command, check

DEPLOY = ROOT / "deploy"
PROGRAM = "/opt/fedfdp/bin/fedfdp"


def checked(words):
    check(Command(" ".join(words), {}, ("fedfdp", *words[1:]), None))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
@pytest.mark.parametrize("unit", ["fedfdp-node@", "fedfdp-coordinator@", "fedfdp-doctor@"])
def test_systemd_takes_the_units(unit, tmp_path):
    for file in DEPLOY.glob(f"{unit}.*"):
        text = file.read_text().replace(PROGRAM, sys.executable)  # what it starts must be there
        (tmp_path / file.name.replace("@.", "@north.")).write_text(text)
    made = sorted(str(file) for file in tmp_path.iterdir())
    said = subprocess.run(["systemd-analyze", "verify", "--man=no", *made], capture_output=True, text=True, timeout=60)
    ours = [line for line in said.stderr.splitlines() if "fedfdp" in line]
    assert (said.returncode, ours) == (0, [])


@pytest.mark.parametrize("unit", sorted(DEPLOY.glob("*.service")), ids=lambda path: path.name)
def test_the_units_call_commands_that_exist(unit):
    (line,) = re.findall(r"^ExecStart=(.*)$", unit.read_text(), flags=re.MULTILINE)
    words = shlex.split(line)
    if words[0] == "/bin/sh":
        for option in ("--resume", "--out"):
            checked([PROGRAM, "server", "--config", "/etc/fedfdp/north.toml", option, "runs/north"])
        assert words[2].endswith(f'exec {PROGRAM} server --config /etc/fedfdp/%i.toml "$@"')
        assert words[2].count("--resume runs/%i") == words[2].count("--out runs/%i") == 1
    else:
        assert words[0] == PROGRAM
        checked(words)


def test_a_finished_run_is_not_started_again_and_again():
    """`fedfdp server --resume` of a finished run is exit code 0 (tests/cli/test_server_cli.py)."""
    lines = (DEPLOY / "fedfdp-coordinator@.service").read_text().splitlines()
    unit = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    assert unit["Restart"] == "on-failure"
    assert "0" not in unit.get("RestartForceExitStatus", "").split()


def test_both_say_where_a_register_can_be():
    """The configs' folder is read-only in both: a relative register would be there."""
    for name in ("fedfdp-coordinator@.service", "compose.yaml"):
        text = (DEPLOY / name).read_text()
        assert "register, if it is given, is an absolute path" in text, name
    assert 'register = "/var/lib/fedfdp/nodes.json"' in (ROOT / "docs" / "years.md").read_text()


def test_the_compose_file_and_the_container():
    found = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    assert set(found["services"]) == {"node", "coordinator"}
    for service in found["services"].values():
        checked(["fedfdp", *service["command"]])
        assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
        named = {volume.split(":")[0] for volume in service["volumes"]} - {"./etc", "./records"}
        assert named <= set(found["volumes"])
    text = (DEPLOY / "Containerfile").read_text()
    copied = [word for line in re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE) for word in line.split()]
    assert all((ROOT / name).exists() for name in copied)
    known = {"FROM", "COPY", "RUN", "USER", "WORKDIR", "ENV", "VOLUME", "STOPSIGNAL", "ENTRYPOINT", "CMD"}
    assert {line.split()[0] for line in text.splitlines() if line and not line.startswith("#")} <= known
