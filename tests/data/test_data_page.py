"""The examples of docs/data.md run as printed."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "data.md"


def test_the_python_examples_run(capsys):
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        exec(compile(example, str(PAGE), "exec"), {})
        printed = capsys.readouterr().out.split("\n")[:-1]
        assert printed == re.findall(r"print\(.*\)  # (.*)", example)
