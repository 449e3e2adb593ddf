"""The three layouts of CIFAR-10, made by hand; and a pickle that asks for more than arrays."""

import io
import json
import os
import pickle

import numpy as np
import pytest
from PIL import Image

from fedfdp.core.errors import DataError
from fedfdp.data import load
from fedfdp.data.named.cifar10 import BINARY, PNG, PYTHON
from fedfdp.data.named.layout import Records

COLOUR = Records(
    np.random.default_rng(0).integers(0, 256, (12, 3, 32, 32), dtype=np.uint8), (np.arange(12) % 10).astype(np.uint8)
)


def cifar_files(layout):
    batches = [slice(2 * i, 2 * i + 2) for i in range(6)]
    if layout is BINARY:
        return [
            b"".join(bytes([y]) + x.tobytes() for x, y in zip(COLOUR.x[b], COLOUR.y[b], strict=True)) for b in batches
        ]
    if layout is PYTHON:
        return [
            pickle.dumps({b"data": COLOUR.x[b].reshape(2, -1), b"labels": COLOUR.y[b].tolist()}, protocol=2)
            for b in batches
        ]
    images = []
    for b in batches:
        file = io.BytesIO()
        Image.fromarray(COLOUR.x[b].transpose(0, 2, 3, 1).reshape(2, 1024, 3)).save(file, "PNG")
        images.append(file.getvalue())
    return [*images, json.dumps(COLOUR.y[:10].tolist()).encode(), json.dumps(COLOUR.y[10:].tolist()).encode()]


@pytest.mark.parametrize("layout", [BINARY, PYTHON, PNG], ids=lambda layout: layout.title)
def test_every_layout_gives_the_same_records(tiny, tmp_path, layout):
    tiny.comes_from(records=COLOUR, layouts=(BINARY, PYTHON, PNG))
    tiny.put(tmp_path / "c", dict(zip(layout.files, cifar_files(layout), strict=True)))
    data = load("tiny", folder=tmp_path / "c")
    assert data.x.numpy() == pytest.approx(COLOUR.x / 127.5 - 1, abs=1e-6)


def test_a_pickle_cannot_run_code(tiny, tmp_path):
    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(tmp_path / "owned"),))

    tiny.comes_from(records=COLOUR, layouts=(PYTHON,))
    tiny.put(tmp_path / "c", {name: pickle.dumps({b"data": Evil()}) for name in PYTHON.files})
    with pytest.raises(DataError, match=r"no tiny in .*damaged \(the pickle asks for"):
        load("tiny", folder=tmp_path / "c")
    assert not (tmp_path / "owned").exists()
