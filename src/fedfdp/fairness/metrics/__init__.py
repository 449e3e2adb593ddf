"""What is measured of a run: one registry, from which terminal, summary, report, tables and tracking read.

A metric is one function with its declaration (`over_clients.py` has most of them); a new file of them is imported here.
"""

from fedfdp.fairness.metrics.over_clients import psi
from fedfdp.fairness.metrics.registry import METRICS, Curve, Metric, Task, number, register, shown, told, values_task
from fedfdp.fairness.metrics.results import ClientResults, measures, of_results
from fedfdp.fairness.metrics.run_facts import RUN_FACTS

__all__ = [
    "METRICS",
    "ClientResults",
    "Curve",
    "Metric",
    "Task",
    "measures",
    "number",
    "of_results",
    "psi",
    "register",
    "shown",
    "told",
    "values_task",
]

for fact in RUN_FACTS:  # shown after the metrics
    register(fact)
