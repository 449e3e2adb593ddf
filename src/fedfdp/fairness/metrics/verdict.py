"""What the numbers of a run come to, in words: said where a reader could take them for more than they are."""

from collections.abc import Mapping
from typing import Any

WIDE = 0.1  # an interval of the accuracy that is wider than this is said


def verdict(values: Mapping[str, Any]) -> list[str]:
    """Sentences about a summary or an evaluation; none where the model beats the constant answer clearly."""
    found = []
    accuracy, baseline = values.get("accuracy"), values.get("baseline_accuracy")
    low, high = values.get("accuracy_low"), values.get("accuracy_high")
    classes = values.get("classes") or {}
    records = sum(classes.get("records", ()))
    if accuracy is not None and baseline is not None and classes:
        always = f"always answering {classes['constant']!r}, which gives {baseline:.2%}"
        if accuracy <= baseline:
            found.append(f"the model is no better than {always}: look at balanced accuracy and AUC")
        elif low is not None and low <= baseline:
            found.append(f"{records:,} test records do not show that the model is better than {always}")
    if low is not None and high is not None and high - low > WIDE:
        found.append(f"few test records: the accuracy may be anything from {low:.0%} to {high:.0%} (95 % interval)")
    error, constant = values.get("rmse"), values.get("baseline_rmse")
    if error is not None and constant is not None and error >= constant:
        found.append(f"the model is no better than always answering the mean, which has an RMSE of {constant:.4g}")
    return found
