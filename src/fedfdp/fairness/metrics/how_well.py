"""How well a model serves, over all test records: accuracy and loss, and what else people ask before they trust it."""

import numpy as np

from fedfdp.fairness.metrics.answers import OfAnswers, macro_auc, of_answers, r_squared, root_mean_square
from fedfdp.fairness.metrics.groups import GROUPS, gap
from fedfdp.fairness.metrics.intervals import wilson
from fedfdp.fairness.metrics.registry import Curve, Metric, Task
from fedfdp.fairness.metrics.results import ClientResults, Compute, of_results

CLASSES: tuple[Task, ...] = ("classification",)
NUMBERS: tuple[Task, ...] = ("regression",)
OF_TASKS = ("perplexity", "iou")  # that only some tasks have: each client's values come with its results


def _accuracy(r: ClientResults) -> float:
    return float(np.average(r.accuracies, weights=r.records))


def _end(r: ClientResults, which: int) -> float:
    return float(wilson(_accuracy(r), r.records.sum())[which])


_OF_RESULTS: tuple[tuple[Metric, Compute], ...] = (
    (Metric("accuracy", "accuracy", "percent", "share of all test records that are right",
            better="higher", tasks=CLASSES, by_client=True, interval=("accuracy_low", "accuracy_high"),
            line="accuracy", result="test accuracy", column="accuracy",
            curve=Curve("Test accuracy", "all test records")),
     _accuracy),
    (Metric("loss", "loss", "number", "mean over the clients' test losses, by their training records",
            better="lower", stands_for="accuracy", by_client=True, line="loss", result="test loss", column="loss",
            curve=Curve("Test loss", "mean")),
     lambda r: float(np.average(r.losses, weights=r.shares))),
    (Metric("accuracy_low", "accuracy, at least", "percent", "lower end of the 95 % interval of the accuracy (Wilson)",
            tasks=CLASSES),
     lambda r: _end(r, 0)),
    (Metric("accuracy_high", "accuracy, at most", "percent", "upper end of the 95 % interval of the accuracy (Wilson)",
            tasks=CLASSES),
     lambda r: _end(r, 1)),
    (Metric("perplexity", "perplexity", "number",
            "e to the mean loss per token of a client, and as geometric mean over the clients by their training "
            "records: as many equally likely words",
            better="lower", tasks=CLASSES, needs="perplexity", by_client=True, line="perplexity",
            result="perplexity"),
     lambda r: float(np.exp(np.average(np.log(r.of_outputs["perplexity"]), weights=r.shares)))),
    (Metric("iou", "IoU", "percent",
            "overlap of answers and targets, over their union, as the mean over classes; over the clients by their "
            "training records",
            better="higher", tasks=CLASSES, needs="iou", by_client=True, line="IoU", result="IoU"),
     lambda r: float(np.average(r.of_outputs["iou"], weights=r.shares))),
)  # fmt: skip
_OF_ANSWERS: tuple[tuple[Metric, OfAnswers], ...] = (
    (Metric("baseline_accuracy", "always the same class", "percent",
            "accuracy of answering, for every test record, the class that is most frequent among the training records",
            tasks=CLASSES, result="always one class",
            curve=Curve("Test accuracy", "always the same class")),
     lambda a: float((a.targets == a.constant).mean())),
    (Metric("balanced_accuracy", "balanced accuracy", "percent",
            "mean of the classes' recalls: every class counts the same, however rare; one answer for all has 1/classes",
            better="higher", tasks=CLASSES, result="balanced accuracy", column="balanced",
            curve=Curve("Test accuracy", "balanced")),
     lambda a: float(np.nanmean(a.recall))),
    (Metric("auc", "AUC", "number",
            "how often a record of a class is rated higher for it than one of another class, 0.5 by chance; of more "
            "than two classes the mean over each class against all others (macro, one-vs-rest)",
            better="higher", tasks=CLASSES, result="AUC", column="AUC"),
     macro_auc),
    (Metric("parity_gap", "gap between groups: favourable answers", "percent",
            "demographic parity: by how much more often one group of the declared column is given the favourable class "
            "than another", better="lower", tasks=CLASSES, needs=GROUPS, by_client=True, result="gap between groups"),
     lambda a: gap(a.given)),
    (Metric("opportunity_gap", "gap between groups: favourable records recognised", "percent",
            "equal opportunity: the same among the records that are of the favourable class", better="lower",
            tasks=CLASSES, needs=GROUPS, by_client=True, result="… where it is true"),
     lambda a: gap(a.recognised)),
    (Metric("rmse", "RMSE", "number", "root of the mean squared error, in the target's own unit",
            better="lower", tasks=NUMBERS, by_client=True, line="RMSE", result="RMSE", column="RMSE",
            curve=Curve("RMSE in the target's own unit", "model")),
     lambda a: root_mean_square(a.gaps)),
    (Metric("baseline_rmse", "RMSE of always the mean", "number",
            "of answering the mean of the training targets for every test record", tasks=NUMBERS,
            result="always the mean",
            curve=Curve("RMSE in the target's own unit", "always the mean")),
     lambda a: root_mean_square(a.baseline_gaps)),
    (Metric("mae", "MAE", "number", "mean size of the error, in the target's own unit",
            better="lower", tasks=NUMBERS, by_client=True, result="MAE"),
     lambda a: float(np.abs(a.gaps).mean())),
    (Metric("r2", "R²", "number", "1 is perfect, 0 as good as always answering the mean, below 0 worse than that",
            better="higher", tasks=NUMBERS, result="R²", column="R²"),
     r_squared),
)  # fmt: skip


def declare() -> None:
    """Adds these metrics to the registry."""
    for metric, compute in _OF_RESULTS:
        of_results(metric)(compute)
    for metric, of in _OF_ANSWERS:
        of_answers(metric)(of)
