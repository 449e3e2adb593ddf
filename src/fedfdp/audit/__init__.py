"""Attacks on the project's own mechanism: what they show is a lower bound on ε, to hold against the ε that is claimed.

An audit can refute a claim; it can never prove one.
"""

from fedfdp.audit.faults import FAULTS, Fault
from fedfdp.audit.release import ReleaseFinding, ReleaseGame, Trials
from fedfdp.audit.training import TrainingFinding, TrainingGame

__all__ = ["FAULTS", "Fault", "ReleaseFinding", "ReleaseGame", "TrainingFinding", "TrainingGame", "Trials"]
