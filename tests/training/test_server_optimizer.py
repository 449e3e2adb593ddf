import pytest
import torch

from fedfdp.core.errors import SettingError
from fedfdp.training.server_optimizer import ServerMemory, ServerOptimizer


def run(server: ServerOptimizer, deltas: list[float]) -> list[float]:
    weights, memory, released = {"w": torch.tensor([1.0])}, ServerMemory(), []
    for delta in deltas:
        weights, memory = server.step(weights, {"w": weights["w"] + delta}, memory)
        released.append(float(server.released(weights, memory)["w"]))
    return released


def test_nothing_added_is_the_methods_own_step():
    assert run(ServerOptimizer(), [0.5, -1.0]) == [1.5, 0.5]


def test_momentum_by_hand():
    # v = 0.5, 0.5·0.5 + 1 = 1.25; w = 1 + 2·0.5 = 2, 2 + 2·1.25
    assert run(ServerOptimizer(optimizer="momentum", lr=2.0, momentum=0.5), [0.5, 1.0]) == pytest.approx([2.0, 4.5])


def test_adam_by_hand():
    # m = 0.1·2 = 0.2, v = 0.01·4 = 0.04: 1 + 0.2/(0.2 + 0.1); m = 0.18 − 0.1 = 0.08, v = 0.0396 + 0.01 = 0.0496
    second = 1 + 0.2 / 0.3 + 0.08 / (0.0496**0.5 + 0.1)
    server = ServerOptimizer(optimizer="adam", momentum=0.9, beta2=0.99, tau=0.1)
    assert run(server, [2.0, -1.0]) == pytest.approx([1 + 0.2 / 0.3, second])


def test_the_average_is_corrected_for_its_start():
    # w = 2, 4: first 2; then (0.9·0.1·2 + 0.1·4)/(1 − 0.81)
    assert run(ServerOptimizer(average=0.9), [1.0, 2.0]) == pytest.approx([2.0, 0.58 / 0.19])


@pytest.mark.parametrize("bad", [{"lr": 0.0}, {"average": 1.0}, {"momentum": -0.1}, {"tau": float("nan")}])
def test_settings_out_of_range_are_refused(bad):
    with pytest.raises(SettingError, match=f"server.{next(iter(bad))} = "):
        ServerOptimizer(**bad)
