import math

import pytest

from fedfdp.core.errors import SettingError


def test_noise_and_clip_ratio_by_hand(constants):
    k = constants(sigma=2.0, clip=0.1, dim=582_026, b_hat=260.0, G=10.0)
    assert k.noise == pytest.approx(4 * 0.01 * 582_026 / 67_600, rel=1e-14)
    assert k.clip_ratio == pytest.approx(0.01, rel=1e-15)


@pytest.mark.parametrize("field", ["L", "mu", "G", "clip", "b_hat"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, 1e31, 1e-31])
def test_positive_constants(constants, field, value):
    with pytest.raises(SettingError, match=f"^{field} = "):
        constants(**{field: value})


@pytest.mark.parametrize(("field", "name"), [("gamma_het", "Gamma"), ("sigma", "sigma"), ("distance", "distance")])
def test_constants_that_may_be_zero(constants, field, name):
    assert getattr(constants(**{field: 0.0}), field) == 0
    with pytest.raises(SettingError, match=f"^{name} = -0.1: must be 0 or more"):
        constants(**{field: -0.1})


@pytest.mark.parametrize("field", ["dim", "rounds"])
@pytest.mark.parametrize("value", [0, -3, 2.5])
def test_counts(constants, field, value):
    with pytest.raises(SettingError, match=f"^{field} = "):
        constants(**{field: value})


def test_constants_that_contradict_each_other(constants):
    with pytest.raises(SettingError, match=r"^mu = 3.0: must be at most L = 2"):
        constants(mu=3.0)
    with pytest.raises(SettingError, match=r"^q0 = 1.5: must be at most q1 = 1"):
        constants(q0=1.5)
    with pytest.raises(SettingError, match=r"^q1 = nan"):
        constants(q1=math.nan)
