import sys

import pytest


@pytest.fixture
def fedfdp(capsys, monkeypatch, tmp_path):
    """Calls the command line in this process, in an empty folder: exit code, stdout, stderr."""
    from fedfdp.cli.main import main

    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fedfdp", *map(str, arguments)])
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call
