"""Compares the gradients of a batch with those that autograd gives for each record alone: a check beside the proof."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedfdp.core.trees import Inputs
from fedfdp.privacy.clipping.contributions import Contribution, row_norms, total_norms
from fedfdp.privacy.clipping.groups import Groups, Sums
from fedfdp.privacy.clipping.job import Job
from fedfdp.privacy.clipping.one_by_one import alone
from fedfdp.privacy.clipping.proof.calls import UnsupportedError

AGREE = 1e-3  # relative; kinks crossed by rounding and another order of summation stay below it
NOTHING = 1e-5  # relative to all of a record's gradient, or to a loss of 1: as good as zero

Gradients = dict[str, Tensor]


@dataclass(frozen=True)
class Reference:
    """What autograd gives for each record alone.

    The gradients are not kept but computed again where they are compared, one record at a time: those of a few records
    take several times as much memory as the model.
    """

    job: Job
    x: Inputs
    y: Tensor
    losses: Tensor  # (B,)
    norms: Tensor  # (B,) of the gradients, in double precision
    finite: bool  # whether all gradients are

    @classmethod
    def of(cls, job: Job, x: Inputs, y: Tensor) -> "Reference":
        """A pass for each of the records."""
        norms, finite = [], []

        def measure(record: int, grads: Gradients) -> None:
            norms.append(torch.cat([row_norms(grad[None]) for grad in grads.values()]).norm())
            finite.append(all(bool(grad.isfinite().all()) for grad in grads.values()))

        losses = alone(job, x, y, measure)
        return cls(job, x, y, losses, torch.stack(norms), all(finite))

    def compare(self, losses: Tensor, found: list[Contribution]) -> None:
        """Raises unless these are every record's loss and gradient as autograd gives them for the record alone."""
        self._same_losses(losses)
        self._same_norms(found)
        alone(self.job, self.x, self.y, lambda record, grads: self._same_gradients(record, grads, found))

    def _same_losses(self, together: Tensor) -> None:
        """A record's loss in a batch is released, and it weighs the record."""
        both_lost = ~self.losses.isfinite() & ~together.isfinite()
        near = (self.losses - together).abs() <= AGREE * self.losses.abs() + NOTHING
        if not bool((both_lost | near).all()):
            raise UnsupportedError("a record's loss depends on other records, or on chance")

    def _same_norms(self, found: list[Contribution]) -> None:
        norms, slack = total_norms(found, len(self.norms), next(iter(self.job.params.values())))
        allowed = AGREE * self.norms + NOTHING * self.norms.max() + (0 if slack is None else slack)
        if not bool(((norms - self.norms).abs() <= allowed).all()):
            raise UnsupportedError("the norms by rules are not autograd's: a record depends on others, or on chance")

    def _same_gradients(self, record: int, reference: Gradients, found: list[Contribution]) -> None:
        sums = Sums(reference, 1)
        c = next(iter(reference.values())).new_zeros(len(self.norms))
        c[record] = 1
        for contribution in found:
            contribution.add_to(sums, c, Groups.of([len(c)]))
        sums.done()
        for name, total in sums.totals.items():
            right = reference[name]
            # Gradients that are zero but for rounding are measured against the record's whole gradient.
            near = AGREE * torch.linalg.vector_norm(right) + NOTHING * self.norms[record]
            if not torch.linalg.vector_norm(total[0] - right) <= near:
                raise UnsupportedError(f"{name}: its gradient for a record depends on other records, or on chance")
