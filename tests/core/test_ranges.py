"""Every number that somebody else may set has a range, and every range is checked where the number comes in."""

import dataclasses
import math
import typing

import pytest

from fedfdp.algorithms import ALGORITHMS
from fedfdp.algorithms.fedfdp import FDPBroadcast, FDPMemory, FedFDP
from fedfdp.core import ranges
from fedfdp.core.errors import SettingError
from fedfdp.engines.flower.policy import Policy
from fedfdp.privacy.dpsgd import DPSGD

KINDS = sorted(ALGORITHMS.values(), key=lambda kind: kind.name)
# Numbers that are checked against each other, within (0, 1), or that only the server reads.
OTHERWISE = {
    "server_low",
    "smoothing",
    "quantile",
    "clip_quantile",
    "epsilon",
    "epsilon_per_period",
    "delta",
    "budgets",
}
RELEASED = {("Seen", "loss")}  # what a client has released itself: used after the noise, it reaches no record


def numbers(kind: type) -> set[str]:
    """The fields that hold a number, or may."""
    hints = typing.get_type_hints(kind)
    plain = {f.name: (hints[f.name], *typing.get_args(hints[f.name])) for f in dataclasses.fields(kind)}
    return {name for name, allowed in plain.items() if int in allowed or float in allowed}


def has_a_range(kind: type) -> set[str]:
    return {name for name, _ in ranges.declared(kind)}


@pytest.mark.parametrize("kind", KINDS)
def test_all_that_a_client_receives_or_remembers_has_a_range(kind):
    assert numbers(kind.Message) == has_a_range(kind.Message)
    free = {name for owner, name in RELEASED if owner == kind.Memory.__name__}
    assert numbers(kind.Memory) - free == has_a_range(kind.Memory)


@pytest.mark.parametrize("kind", [*KINDS, DPSGD, Policy])
def test_every_setting_has_a_range(kind):
    assert numbers(kind) - OTHERWISE == has_a_range(kind)


BOUND_EACH_OTHER = ("loss_clip", "loss_floor", "loss_ceiling", "baseline")


@pytest.mark.parametrize("kind", [*KINDS, DPSGD, Policy])
def test_both_ends_are_allowed_and_nothing_beyond(kind):
    for name, range_ in ranges.declared(kind):
        if name in BOUND_EACH_OTHER or (kind.__name__, name) == ("ALIDPFL", "local_epochs"):
            continue  # those that bound each other; and one that must be left out
        whole = int in (hint := typing.get_type_hints(kind)[name], *typing.get_args(hint))[:2]
        for end in (range_.low, range_.high):
            assert getattr(kind(**{name: int(end) if whole else end}), name) == end
        below, above = range_.low - 1 if whole else math.nextafter(range_.low, -math.inf), range_.high * 1.001 + 1
        for value in (below, above, math.nan, math.inf, -math.inf):
            with pytest.raises(SettingError, match=rf"\.{name} = .* from .* to ") as caught:
                kind(**{name: value})
            assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["loss_clip", "loss_floor", "loss_ceiling"])
def test_loss_bounds_too(name):
    for value in (0.0, 1e-13, 1e13, math.inf, math.nan):
        with pytest.raises(SettingError, match=rf"algorithm\.{name} = "):
            FedFDP(**{name: value})
    assert FedFDP(loss_floor=1e-12, loss_clip=1.0, loss_ceiling=1e12).loss_ceiling == 1e12


def test_a_subclass_with_another_default_keeps_the_range():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Mine(FedFDP):
        kappa: float = 4.0

    assert Mine().kappa == 4.0
    with pytest.raises(SettingError, match=r"algorithm\.kappa = 1e\+39"):
        Mine(kappa=1e39)


def test_the_bound_of_a_round_is_in_range_wherever_its_factors_are():
    assert ranges.CLIP.low * ranges.CLIP_SCALE.low >= ranges.BOUND.low
    assert ranges.CLIP.high * ranges.CLIP_SCALE.high <= ranges.BOUND.high


def test_a_value_is_shown_in_one_short_line():
    with pytest.raises(SettingError) as caught:
        ranges.check(FDPBroadcast(10**4000, {}, 1.0, 1.0), "FDPBroadcast")
    assert len(str(caught.value)) < 150
    with pytest.raises(SettingError, match=r"^FDPMemory\.loss_bound = 1e\+300: a bound on a record's loss"):
        ranges.check(FDPMemory(1e300), "FDPMemory")


@pytest.mark.parametrize(("value", "nearest"), [(-1e20, -1e15), (3.0, 3.0), (math.inf, 1e15)])
def test_a_released_mean_loss_is_brought_into_range(value, nearest):
    assert ranges.LOSS.nearest(value) == nearest
