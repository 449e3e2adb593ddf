"""examples/views.py: views are records of one image, which is what is protected."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import views


def test_the_views_of_an_image():
    x = torch.arange(12.0).reshape(2, 1, 2, 3)
    seen = views.views_of(x, 4)
    assert seen.shape == (2, 4, 1, 2, 3)
    rows = [[0, 1, 2], [2, 1, 0], [2, 0, 1], [0, 2, 1]]  # as it is, mirrored, and both moved to the right
    assert seen[0, :, 0, 0].tolist() == rows


def test_views_cost_nothing_and_count_as_one_image():
    found = {}
    for count in (1, 3):
        data = views.holders(count, 0, "digits", 0.5)
        found[count] = views.trained(data, "linear", 4.0, 0, rounds=3)
        assert sum(len(client.train) for client in data.clients) == count * found[count]["records"]
    assert found[1]["records"] == found[3]["records"]
    assert found[1]["epsilon"] == pytest.approx(found[3]["epsilon"], abs=0)
    assert found[1]["epsilon"] <= 3.52
