"""The tasks' losses, and when an output is right, by hand."""

import math

import pytest
import torch

from fedfdp.core.identity import identity
from fedfdp.models.losses import cross_entropy, squared_error
from fedfdp.models.tasks import TASKS, task_for


def test_classification_by_hand():
    task, output, y = task_for(3), torch.tensor([[0.0, 0.0], [math.log(3), 0.0]]), torch.tensor([1, 0])
    assert task is TASKS["classification"]
    assert task.loss(output, y).tolist() == pytest.approx([math.log(2), math.log(4 / 3)])
    assert task.right(torch.tensor([[0.0, 1.0], [0.0, 1.0]]), y).tolist() == [True, False]
    assert task.fits((2, 3), 3)
    assert not any(task.fits(shape, 1) for shape in ((2,), (2, 2), (2, 1, 1)))


def test_regression_by_hand():
    task, y = task_for(None), torch.tensor([[1.0, 0.0], [0.0, 3.0]])
    assert task is TASKS["regression"]
    assert task.loss(torch.tensor([[3.0, 0.0], [0.0, 0.0]]), y).tolist() == [2.0, 4.5]  # (2² + 0)/2, (0 + 3²)/2
    assert task.loss(torch.tensor([[1.0], [2.0]]), torch.tensor([0.0, 0.0])).tolist() == [1.0, 4.0]
    assert task.loss(torch.zeros(0, 2), torch.zeros(0, 2)).shape == (0,)
    assert task.right(torch.zeros(2, 2), y).isnan().tolist() == [True, True]
    assert task.fits((2,), 1)
    assert task.fits((2, 2), 2)
    assert not task.fits((2,), 2)


def test_a_move_of_the_losses_is_not_another_run():
    """Runs on disk are identified by the digest of their loss: what it was when they began."""
    assert identity(cross_entropy) == "abab85afa5fa45c932e863b4b07b6f87"
    assert identity(squared_error) == "3492d02fc14d0e76ab79f6cd41a0856c"
