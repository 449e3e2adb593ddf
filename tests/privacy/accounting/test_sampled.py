"""The distribution whose grid is computed at once is dp-accounting's own, to the last bit."""

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from fedfdp.privacy.accounting.sampled import sampled_gaussian


@pytest.mark.parametrize("q", [1e-6, 0.0123, 0.1, 0.5, 0.999])
@pytest.mark.parametrize("sigma", [0.5, 1.3219, 7.5, 1e4])
def test_the_same_bits_as_point_by_point(q, sigma):
    theirs = pld.from_gaussian_mechanism(standard_deviation=sigma, sampling_prob=q, value_discretization_interval=1e-2)
    ours = sampled_gaussian(q, sigma, 1e-2)
    for way in ("_pmf_remove", "_pmf_add"):
        expected, found = (vars(getattr(one, way).to_dense_pmf()) for one in (theirs, ours))
        assert expected.keys() == found.keys()
        assert all(np.array_equal(expected[name], found[name]) for name in expected)


def test_a_grid_that_reaches_the_edge_of_the_losses():
    """An interval that divides log(1 − q): the loss without sampling is infinite there."""
    q = 1 - np.exp(-0.25)
    theirs = pld.from_gaussian_mechanism(standard_deviation=0.3, sampling_prob=q, value_discretization_interval=0.25)
    ours = sampled_gaussian(q, 0.3, 0.25)
    for epsilon in (0.0, 0.25, 0.5, 3.0):
        assert ours.get_delta_for_epsilon(epsilon) == theirs.get_delta_for_epsilon(epsilon)
