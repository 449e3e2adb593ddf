"""Clipped sums: per-record gradients, each cut to a known bound, added up. Never adds noise and never keeps a record.

How a clipped sum comes about, and in which file:

1. kernel.py: `clipped_sum` is called with a model, its loss, records and a bound C. refused.py stops models that cannot
   be private at all.
2. plan.py finds out once per model which way it goes. proof/ tries to prove that no record reaches another one in its
   forward pass; agreement.py compares the gradients of that way with autograd's.
3. by_rules.py, if the proof holds: one forward pass that is compared with the proven one, one backward pass, and the
   rule of each layer (layers/) gives the per-record gradients, stored or as factors (contributions.py); pulled_back.py
   follows those of values that were made of parameters back to these.
4. one_by_one.py, if it does not: each record by itself through torch.func, or in a loop. undo.py puts back what a pass
   changes in the model, state.py refuses what cannot be put back. chunks.py does either, a part of the batch at a time.
5. bounded.py cuts each record's coefficient so that ‖c·g‖ ≤ C, and groups.py adds up Σ c·g, apart for each group.
"""

from fedfdp.privacy.clipping.kernel import ClippedSum, clipped_sum, record_losses
from fedfdp.privacy.clipping.report import LayerReport, check_model

__all__ = ["ClippedSum", "LayerReport", "check_model", "clipped_sum", "record_losses"]
