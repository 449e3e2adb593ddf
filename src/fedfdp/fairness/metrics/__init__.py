"""What is measured of a run: one registry, from which terminal, summary, report, tables and tracking read.

A metric is one function with its declaration: `how_well.py`, `over_clients.py`. A new file of them is
declared here, in the order in which they are shown.
"""

from fedfdp.fairness.metrics import how_well, over_clients
from fedfdp.fairness.metrics.answers import Answers, by_class, by_group
from fedfdp.fairness.metrics.groups import Groups
from fedfdp.fairness.metrics.over_clients import psi
from fedfdp.fairness.metrics.registry import METRICS, Curve, Metric, Task, number, register, shown, told, values_task
from fedfdp.fairness.metrics.results import ClientResults, measures, of_results
from fedfdp.fairness.metrics.run_facts import RUN_FACTS

__all__ = [
    "METRICS",
    "Answers",
    "ClientResults",
    "Curve",
    "Groups",
    "Metric",
    "Task",
    "by_class",
    "by_group",
    "measures",
    "number",
    "of_results",
    "psi",
    "register",
    "shown",
    "told",
    "values_task",
]

how_well.declare()
over_clients.declare()
for fact in RUN_FACTS:  # shown after the metrics
    register(fact)
