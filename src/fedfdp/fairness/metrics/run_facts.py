"""What a run keeps beside the metrics of its results: ε, rounds and the like, declared so that they are shown alike.

The run itself computes them.
"""

from fedfdp.fairness.metrics.registry import Curve, Metric

_SPENT = (
    "Of the client that spent most; while a run goes on this is an upper bound, at most about half a percent above."
)

RUN_FACTS = (
    Metric(
        "epsilon", "ε", "epsilon", "spent by the client that spent most",
        better="lower", column="ε", curve=Curve("ε spent", "ε", note=_SPENT, zero=True),
    ),
    Metric("delta", "δ", "delta", "the δ at which ε is stated"),
    Metric("epsilon_budget", "ε budget", "number", "the ε that was allowed"),
    Metric("sigma", "σ", "number", "noise multiplier of the gradient"),
    Metric("accountant", "accountant", "text", "what computes ε"),
    Metric("rounds", "rounds", "count", "rounds done", column="rounds"),
    Metric("seconds", "seconds", "seconds", "time that the rounds took", column="seconds"),
    Metric("records", "training records", "count", "of all clients"),
    Metric("weights", "weights of the model", "count", "numbers that are trained"),
)  # fmt: skip
