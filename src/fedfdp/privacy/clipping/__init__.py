"""Per-sample clipping: the sum of gradients in which no record counts for more than a known bound.

Never adds noise and never keeps a record.
"""

from fedfdp.privacy.clipping.check import LayerReport, check_model
from fedfdp.privacy.clipping.kernel import ClippedSum, clipped_sum, record_losses

__all__ = ["ClippedSum", "LayerReport", "check_model", "clipped_sum", "record_losses"]
