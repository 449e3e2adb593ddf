import pytest

from fedfdp.algorithms import find
from fedfdp.core.errors import SettingError
from fedfdp.core.importing import imported
from fedfdp.engines.flower.holding import _call
from fedfdp.fairness.performance import Performance
from fedfdp.models import build
from fedfdp.models.losses import loss_at

BY_NAME = {
    "algorithm.name": find,
    "model.name": lambda path: build(path, input_shape=(1,), outputs=2, seed=0),
    "metric": Performance.of,
    "loss": loss_at,
    "data.loader": _call,
}


def test_what_is_there_is_given():
    import math

    assert imported("math:sqrt", "loss") is math.sqrt


@pytest.mark.parametrize("setting", BY_NAME)
@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("absent_module:Thing", "cannot be imported: No module named 'absent_module'; check PYTHONPATH"),
        ("math:absent", "cannot be imported: module 'math' has no attribute 'absent'; check PYTHONPATH"),
        (":", "cannot be imported: Empty module name; check PYTHONPATH"),
    ],
)
def test_every_setting_that_names_code_answers_alike(setting, path, said):
    with pytest.raises(SettingError) as error:
        BY_NAME[setting](path)
    assert str(error.value) == f"{setting} = {path!r}: {said}"


@pytest.mark.parametrize("path", ["math:pi", "math"])
def test_what_cannot_be_called_is_no_function(path):
    with pytest.raises(SettingError, match=rf"loss = '{path}': not a function; give package.module:function"):
        imported(path, "loss")


def test_a_loader_that_fails_is_not_blamed_on_the_import(tmp_path, monkeypatch):
    (tmp_path / "failing_loader.py").write_text("def load():\n    raise ValueError('no disk')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SettingError, match=r"data.loader = 'failing_loader:load': fails: no disk; call it by itself"):
        _call("failing_loader:load")
