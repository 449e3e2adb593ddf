"""Every setting of a node's [data] with every kind of source: it counts, or it is refused by name."""

import sys
from dataclasses import fields

import numpy as np
import pytest
import torch

from fedfdp.core.errors import DataError, FedFDPError, SettingError
from fedfdp.data.schema import Estimate
from fedfdp.deploy.node import own_records
from fedfdp.engines.flower.policy import NodeData
from fedfdp.engines.flower.sides import Sides

X = np.arange(24, dtype=np.float32).reshape(12, 2) / 24
Y = np.array([0, 1] * 6)
WHOM = [f"p{i // 3}" for i in range(12)]  # four persons with three records each

# Each setting with a value that is wrong, or changes something, wherever it counts.
VALUES = {
    "holder": "who", "label": "y", "unit": "whom", "classes": 2, "target": (0.0, 1.0), "test": "held",
    "columns": {"a": [0, 2]}, "ignore": ("b",), "range": (0.0, 2.0), "estimate": Estimate(), "test_fraction": 0.5,
    "missing": ("0.0",), "decimal": ",", "unlabelled": "skip", "unchecked": ("a",), "task": "multi-label",
    "inputs": ("x",), "group": "b", "group_input": False, "favourable": ("1",),
}  # fmt: skip
SOURCES = ("table", "archive", "split archive", "images", "loader", "split loader", "config")
COUNTS = {
    "table": {"holder", "label", "unit", "classes", "target", "test", "columns", "ignore", "test_fraction"}
    | {"missing", "decimal", "unlabelled"},
    "archive": {"holder", "label", "unit", "classes", "target", "test", "range", "test_fraction", "task", "inputs"},
    "split archive": {"holder", "label", "unit", "classes", "target", "range", "task", "inputs"},
    "images": {"classes", "test_fraction"},
    "loader": {"unit", "classes", "test_fraction", "task"},
    "split loader": {"unit", "classes", "task"},
    "config": set(),
}
NEEDED = {  # what a source cannot do without
    "table": {"label": "y", "classes": 2, "columns": {"a": [0, 1], "b": [0, 1], "whom": ["p0", "p1", "p2", "p3"],
                                                      "who": ["n"], "held": [0, 1]}},
    "archive": {"classes": 2}, "split archive": {"classes": 2},
    "images": {"classes": 2}, "loader": {"classes": 2}, "split loader": {"classes": 2}, "config": {},
}  # fmt: skip


@pytest.fixture
def place(tmp_path, monkeypatch):
    from PIL import Image

    held = np.array([0, 0, 1] * 4)
    rows = [f"{a},{b},{y},{whom},n,{h}" for (a, b), y, whom, h in zip(X, Y, WHOM, held, strict=True)]
    (tmp_path / "r.csv").write_text("a,b,y,whom,who,held\n" + "\n".join(rows) + "\n")
    beside = {"whom": np.array(WHOM), "who": np.array(["n"] * 12), "held": held}
    np.savez(tmp_path / "r.npz", x=X, y=Y, **beside)
    parts = {f"{name}_test": array[:3] for name, array in {"x": X + 1, "y": Y, **beside}.items()}
    parts["whom_test"] = np.array(["q", "q", "r"])
    np.savez(tmp_path / "s.npz", x=X, y=Y, **beside, **parts)
    for name in ("0", "1"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for i in range(3):
            Image.fromarray(np.full((4, 4), 40 * i, np.uint8)).save(tmp_path / "images" / name / f"{i}.png")
    code = "from test_flower_holding import X, Y, WHOM\n"
    code += "def two(): return X, Y\ndef four(): return X, Y, X[:3] + 1, Y[:3]\n"
    code += "def whom(): return {'x': X, 'y': Y, 'whom': WHOM}\n"
    code += "def split(): return {'x': X, 'y': Y, 'x_test': X[:3] + 1, 'y_test': Y[:3], 'whom': WHOM, "
    code += "'whom_test': ['q', 'q', 'r']}\n"
    code += "def short(): return {'x': X, 'y': Y, 'x_test': X[:3], 'y_test': Y[:3], 'whom': WHOM[:11], "
    code += "'whom_test': WHOM[:4]}\n"
    code += "def nobody(): return {'x': X, 'y': Y, 'whom': [None, *WHOM[1:]]}\n"
    code += "def three(): return X, Y, X\n"
    (tmp_path / "holding_loaders.py").write_text(code)
    (tmp_path / "run.toml").write_text('[data]\nsource = "digits"\nclients = 2\nfraction = 0.1\npartition = "iid"\n')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(__file__.rpartition("/")[0])
    sys.modules.pop("holding_loaders", None)
    return tmp_path


def source(place, kind, unit=False):
    return {
        "table": {"file": str(place / "r.csv")},
        "archive": {"file": str(place / "r.npz")},
        "split archive": {"file": str(place / "s.npz")},
        "images": {"file": str(place / "images")},
        "loader": {"loader": f"holding_loaders:{'whom' if unit else 'two'}"},
        "split loader": {"loader": f"holding_loaders:{'split' if unit else 'four'}"},
        "config": {"config": str(place / "run.toml"), "part": 0},
    }[kind]


def content(federation):
    (client,) = federation.clients
    whom = None if client.train.unit is None else client.train.unit.tolist()
    whole = federation.x
    inputs = whole.tolist() if isinstance(whole, torch.Tensor) else [part.tolist() for part in whole.parts]
    return (
        federation.classes, federation.unit, whom, inputs, federation.y.tolist(),
        client.train.index.tolist(), client.test.index.tolist(),
    )  # fmt: skip


def made(place, kind, **more):
    name = "client-0" if kind == "config" else "n"
    given = {**NEEDED[kind], **more}
    if more.get("target"):
        given.pop("classes", None)
    return content(divided(own_records(name, NodeData(**source(place, kind, "unit" in more), **given))))


def divided(held):
    return Sides(b"key").divided(held.federation, held.fraction, held.whom)


def test_all_settings_are_here():
    assert set(VALUES) == {f.name for f in fields(NodeData)} - {"file", "loader", "config", "part"}


@pytest.mark.parametrize("setting", VALUES)
@pytest.mark.parametrize("kind", SOURCES)
def test_a_setting_counts_or_is_refused_by_name(place, kind, setting):
    """Where it counts, something changes, or what it says is checked against the records."""
    value, before = VALUES[setting], made(place, kind)
    if setting not in COUNTS[kind]:
        with pytest.raises(FedFDPError, match=rf"data\.{setting}|data\.classes = None: image folders"):
            made(place, kind, **{setting: value})
        return
    if setting in ("label", "holder", "classes"):  # the same as it is, or has to be: another value is an error
        assert made(place, kind, **{setting: value}) == before
        value = {"label": "nothing", "holder": "nothing", "classes": 7 if "loader" in kind else 3}[setting]
    elif setting == "columns":
        value = {**NEEDED["table"]["columns"], "a": [0, 2]}
    elif setting == "ignore":  # no longer an input
        assert (
            len(
                made(
                    place,
                    kind,
                    ignore=value,
                    columns={"a": [0, 1]}
                    | {name: spec for name, spec in NEEDED["table"]["columns"].items() if name not in ("a", "b")},
                )[3][0]
            )
            == 8 - 1
        )
        return
    elif setting == "unlabelled":  # a row without a label is left out, where it is an error otherwise
        text = (place / "r.csv").read_text()
        (place / "r.csv").write_text(text.replace(",0,p0", ",,p0", 1))
        with pytest.raises(DataError, match="row 1, column 'y': is empty"):
            made(place, kind)
        assert len(made(place, kind, unlabelled="skip")[3]) == len(before[3]) - 1
        return
    elif setting in ("missing", "decimal"):
        with pytest.raises(DataError, match="is missing" if setting == "missing" else "is not a number"):
            made(place, kind, **{setting: value})
        return
    try:
        after = made(place, kind, **{setting: value})
    except DataError as error:
        assert value in str(error) or setting in ("label", "holder", "classes")  # noqa: PT017
        return
    assert after != before


@pytest.mark.parametrize("kind", ["table", "archive", "split archive", "loader", "split loader"])
def test_persons_are_protected_wherever_unit_is_accepted(place, kind):
    given = dict(NEEDED[kind])
    if kind == "table":
        given["columns"] = {"a": [0, 1], "b": [0, 1]}
        given["ignore"] = ("who", "held")
    whole = divided(own_records("n", NodeData(**source(place, kind, unit=True), unit="whom", **given)))
    (client,) = whole.clients
    persons = 4 if "split" in kind else 3  # a quarter of them is held back where the split is not given
    assert (whole.unit, client.size) == ("whom", persons)
    assert len(client.train) == 3 * persons
    named = client.train.unit
    assert not set(named[client.train.index].tolist()) & set(named[client.test.index].tolist())


def test_a_loader_that_does_not_say_of_whom_is_refused(place):
    for function in ("two", "four"):
        with pytest.raises(SettingError, match=r"data\.unit = 'whom': the loader gives no array 'whom'; return a dict"):
            own_records("n", NodeData(loader=f"holding_loaders:{function}", unit="whom"))
    with pytest.raises(SettingError, match=r"gives 'whom', which has no use; set data.unit = 'whom'"):
        own_records("n", NodeData(loader="holding_loaders:whom"))
    with pytest.raises(DataError, match="12 records in 'x', 11 in 'whom'"):
        own_records("n", NodeData(loader="holding_loaders:short", unit="whom"))
    with pytest.raises(DataError, match="some records in 'whom' have no person"):
        own_records("n", NodeData(loader="holding_loaders:nobody", unit="whom"))
    with pytest.raises(SettingError, match="gives 3 arrays"):
        own_records("n", NodeData(loader="holding_loaders:three"))


def test_a_fraction_beside_a_given_split_is_refused(place):
    for kind in ("split archive", "split loader"):
        with pytest.raises(SettingError, match=r"data\.test_fraction = 0\.5: not allowed beside given test records"):
            made(place, kind, test_fraction=0.5)
    with pytest.raises(SettingError, match=r"data\.test_fraction = 1\.5"):
        NodeData(file="f", test_fraction=1.5)
