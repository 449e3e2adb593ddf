"""What is possible without privacy where records have holders by nature: all records pooled, and each holder alone.

Prints a Markdown table: accuracy over all test records and of the worst holder, of a logistic regression trained on the
training records of all holders, and of one trained on each holder's own. The split is that of the presets (seed 0).

    python scripts/silo_baselines.py [NAME …]
"""

import sys
from collections.abc import Sequence

import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression

from fedfdp.data import Federation, load
from fedfdp.data.named.catalog import CATALOG
from fedfdp.data.named.entry import Table

Held = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def fitted(x: np.ndarray, y: np.ndarray) -> LogisticRegression | DummyClassifier:
    """A holder with a single class can only say that one."""
    return (LogisticRegression(max_iter=1000) if len(set(y)) > 1 else DummyClassifier()).fit(x, y)


def right(models: Sequence[LogisticRegression | DummyClassifier], holders: Sequence[Held]) -> tuple[float, float]:
    """Accuracy over all test records, and of the worst holder that has some."""
    hits = [model.predict(x) == y for model, (_, _, x, y) in zip(models, holders, strict=True) if len(y)]
    return float(np.concatenate(hits).mean()), min(float(hit.mean()) for hit in hits)


def main(names: Sequence[str]) -> None:
    tables = [entry for entry in CATALOG.values() if isinstance(entry, Table)]
    print("| name | pooled | pooled, worst | alone | alone, worst |\n| --- | ---: | ---: | ---: | ---: |")
    for entry in tables:
        if names and entry.name not in names:
            continue
        held = Federation.partition(load(entry.name), how="column", column=entry.facts.holder)
        holders: list[Held] = []
        for client in held.clients:
            (x, y), (test_x, test_y) = client.train.take(), client.test.take()
            holders.append((x.numpy(), y.numpy(), test_x.numpy(), test_y.numpy()))
        one = fitted(np.concatenate([h[0] for h in holders]), np.concatenate([h[1] for h in holders]))
        pooled, alone = right([one] * len(holders), holders), right([fitted(h[0], h[1]) for h in holders], holders)
        print(
            f"| `{entry.name}` | " + " | ".join(f"{100 * value:.1f} %" for value in (*pooled, *alone)) + " |",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
