"""fedfdp data list, get and show, as a user meets them; on digits and on a dataset made here."""

import json
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from fedfdp.cli.data import app
from fedfdp.core.errors import DataError, FedFDPError, SettingError
from fedfdp.data.named import catalog
from fedfdp.data.named.entry import Images
from fedfdp.data.named.layout import Records
from fedfdp.data.named.mnist import IDX
from fedfdp.data.named.origins import FetchError


class Offline:
    title = "npm package p 1.0"

    def fetch(self, folder, say):
        raise FetchError("npm is not installed")


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path):
    """A dataset of 20 images, nowhere to be had; its idx files are in tmp_path / "files"; the cache is empty."""
    x = np.random.default_rng(0).integers(0, 256, (20, 1, 2, 2), dtype=np.uint8)
    y = (np.arange(20) % 2).astype(np.uint8)
    entry = Images(
        name="tiny",
        records=20,
        train=15,
        shape=(1, 2, 2),
        classes=2,
        brightest=255,
        sha256=Records(x, y).digest(),
        layouts=(IDX,),
        origins=(Offline(),),
    )
    monkeypatch.setitem(catalog.CATALOG, "tiny", entry)
    monkeypatch.setenv("FEDFDP_DATA", str(tmp_path / "cache"))
    (tmp_path / "files").mkdir()
    for name, part in zip(IDX.files, (x[:15, 0], y[:15], x[15:, 0], y[15:]), strict=True):
        sizes = b"".join(size.to_bytes(4, "big") for size in part.shape)
        (tmp_path / "files" / name).write_bytes(bytes([0, 0, 8, part.ndim]) + sizes + part.tobytes())


def call(*words):
    """The command's outcome; an error that the user can fix is raised, as the main command line expects."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    if isinstance(result.exception, FedFDPError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


def test_list_says_what_is_there(tmp_path):
    rows = {row["name"]: row for row in json.loads(call("list", "--json").stdout)}
    assert set(rows) == set(catalog.CATALOG)
    assert (rows["mnist"]["records"], rows["cifar10"]["shape"]) == (70_000, [3, 32, 32])
    assert (rows["tiny"]["cached"], rows["digits"]["cached"]) == (False, None)
    call("get", "tiny", "--folder", tmp_path / "files")
    assert {row["name"]: row["cached"] for row in json.loads(call("list", "--json").stdout)}["tiny"] is True
    text = call("list").stdout
    assert "1×28×28" in text
    assert str(tmp_path / "cache") in text


def test_get_from_a_folder_then_show(tmp_path):
    out = call("get", "tiny", "digits", "--folder", tmp_path / "files").stdout
    assert out.startswith(f"tiny: 20 records, checked, in {tmp_path / 'cache' / 'tiny.safetensors'} (")
    assert "digits: comes with scikit-learn, nothing to get" in out
    assert (
        "tiny: 20 records, 2 clients, iid, seed 0" in call("show", "tiny", "--clients", 2, "--partition", "iid").stdout
    )


def test_get_errors(tmp_path):
    with pytest.raises(SettingError, match="did you mean 'mnist'"):
        call("get", "digits", "mnits")
    with pytest.raises(DataError, match=r"tiny cannot be had. Tried npm package p 1.0: npm is not installed"):
        call("get", "tiny")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no tiny in"):
        call("get", "tiny", "--folder", tmp_path / "empty")


def test_show_draws_each_client_and_class():
    text = call("show", "digits", "--partition", "column", "--column", "label").stdout
    rows = text.splitlines()[2:12]
    for k, row in enumerate(rows):
        # Client k holds class k alone, so the only full cell is the k-th.
        assert row.split()[:11] == [str(k), *("██" if c == k else "··" for c in range(10))]
    # scikit-learn's digits have 174 to 183 images a class.
    sizes, kinds = "least 174, median 180, most 183", "least 1, median 1, most 1"
    assert f"records per client: {sizes}\nclasses per client: {kinds}\n" in text


def test_show_as_json_adds_up_and_is_repeatable():
    first = call("show", "digits", "--clients", 5, "--json").stdout
    answer = json.loads(first)
    assert sum(client["train"] + client["test"] for client in answer["clients"]) == 1797
    totals = np.sum([client["counts"] for client in answer["clients"]], axis=0)
    assert totals.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert call("show", "digits", "--clients", 5, "--json").stdout == first
    assert json.loads(call("show", "digits", "--clients", 5, "--seed", 1, "--json").stdout) != answer
    half = json.loads(call("show", "digits", "--fraction", 0.5, "--json").stdout)
    assert half["records"] == 898


def test_show_summarises_many_clients():
    text = call("show", "digits", "--clients", 300, "--partition", "iid").stdout
    assert sum(line.startswith("client-") for line in text.splitlines()) == 20
    assert "20 of 300 clients" in text


@pytest.mark.parametrize("clients", [10, 70])
def test_show_draws_a_picture(tmp_path, clients):
    path = tmp_path / "who.png"
    call("show", "digits", "--clients", clients, "--png", path)
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB"))
    assert pixels.shape == (720, 1350, 3)
    blue = np.array([0x4E, 0x9B, 0xD8])  # class 0: more than its patch in the legend
    assert (np.abs(pixels.astype(int) - blue).max(axis=2) < 3).sum() > 2_000


def test_show_errors(tmp_path):
    with pytest.raises(SettingError, match="clients = 1798: there are 1797 records"):
        call("show", "digits", "--clients", 1798)
    with pytest.raises(SettingError, match="partition = 'dirchlet': no such partition; did you mean 'dirichlet'"):
        call("show", "digits", "--partition", "dirchlet")
    with pytest.raises(SettingError, match=r"--png = .*cannot be written"):
        call("show", "digits", "--png", tmp_path / "absent" / "who.png")
    with pytest.raises(SettingError, match=r"--png = .*cannot be written"):
        call("show", "digits", "--png", tmp_path / "who.doc")


def test_the_command_line_starts_without_torch():
    code = "import sys, fedfdp.cli.data; print(*(name in sys.modules for name in ('torch', 'numpy', 'matplotlib')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "False"]
