"""The convergence bound of the paper's Theorem 2 and the λ* that makes it least: pure arithmetic on given constants."""

from fedfdp.theory.bound import (
    derived_A,
    derived_bound,
    derived_domain,
    derived_P,
    printed_A,
    printed_bound,
    printed_domain,
    step_offset,
    weight_ceiling,
    weight_floor,
)
from fedfdp.theory.bound_terms import (
    Coefficients,
    derived_coefficients,
    printed_coefficients,
    theorem_coefficients,
)
from fedfdp.theory.constants import Constants
from fedfdp.theory.cubic import Depressed, depressed, roots
from fedfdp.theory.optimum import Optimum, Regime, clipping_switch, derived_optimum, minimiser, printed_optimum

__all__ = [
    "Coefficients",
    "Constants",
    "Depressed",
    "Optimum",
    "Regime",
    "clipping_switch",
    "depressed",
    "derived_A",
    "derived_P",
    "derived_bound",
    "derived_coefficients",
    "derived_domain",
    "derived_optimum",
    "minimiser",
    "printed_A",
    "printed_bound",
    "printed_coefficients",
    "printed_domain",
    "printed_optimum",
    "roots",
    "step_offset",
    "theorem_coefficients",
    "weight_ceiling",
    "weight_floor",
]
