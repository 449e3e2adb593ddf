"""The adaptive λ_s beside fixed ones: several data sets and seeds, each run a folder that a second call continues.

    nice python scripts/compare_adaptive.py --out runs/adaptive

A fifth of the records with a fifth of the noise multipliers: every step has the noise that the default preset has on
all records under its ε. It stands in for such a run and is no private run itself. Prints a JSON table.
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from fedfdp.runs import config as configs
from fedfdp.runs.build import launch
from fedfdp.runs.folder import RunFolder

SETTINGS = [
    "data.fraction=0.2",
    "privacy.sigma=0.4",
    "privacy.sigma_loss=1.0",
    "privacy.epsilon=100000.0",  # no limit: such noise promises nothing
    "rounds=300",
    "threads=1",
]
FIXED = (0.0, 2.5, 5.0, 10.0, 20.0)
RULES = {
    "adaptive": ["algorithm.server_rule=adaptive"],
    **{f"fixed-{lam:g}": ["algorithm.server_rule=fixed", f"algorithm.server_lam={lam}"] for lam in FIXED},
}
MEASURES = ("accuracy", "psi", "psi_train", "worst_accuracy")


def summary_of(folder: Path, overrides: list[str]) -> dict[str, Any]:
    """The summary of that run: read where it is finished, else run or continued."""
    started = (folder / "run.json").is_file()
    if started and RunFolder.find(folder).finished:
        return RunFolder.find(folder).summary()
    config = configs.load("default", overrides)
    return launch(config, out=folder, resume=started).summary


def table(done: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Mean and standard deviation over the seeds of every measure, rule by rule."""
    return {
        rule: {"seeds": len(runs)}
        | {
            name: [
                statistics.fmean(run[name] for run in runs),
                statistics.stdev([run[name] for run in runs]) if len(runs) > 1 else None,
            ]
            for name in MEASURES
        }
        for rule, runs in done.items()
    }


def verdict(rows: dict[str, Any]) -> dict[str, Any]:
    """The adaptive rule beside the fixed λ_s of least Ψ, on test and on training records."""
    answer: dict[str, Any] = {}
    for name in ("psi", "psi_train"):
        best = min((rule for rule in rows if rule != "adaptive"), key=lambda rule: rows[rule][name][0])
        answer[name] = {
            "best_fixed": best,
            "ratio": rows["adaptive"][name][0] / rows[best][name][0],
            "accuracy_gap": rows["adaptive"]["accuracy"][0] - rows[best]["accuracy"][0],
        }
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", nargs="+", default=["mnist", "fashion-mnist"])
    parser.add_argument("--rules", nargs="+", default=list(RULES), choices=list(RULES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", nargs="+", default=[], help="section.setting=value on top")
    given = parser.parse_args()
    answer = {}
    for data in given.data:
        done: dict[str, list[dict[str, Any]]] = {rule: [] for rule in given.rules}
        for seed in range(given.seeds):
            for rule in given.rules:
                overrides = [*SETTINGS, f"data.source={data}", f"seed={seed}", *RULES[rule], *given.set]
                done[rule].append(summary_of(given.out / data / f"{rule}-{seed}", overrides))
            rows = table(done)
            fixed = any(rule.startswith("fixed") for rule in rows)
            answer[data] = {"rules": rows} | ({"verdict": verdict(rows)} if fixed and "adaptive" in rows else {})
            (given.out / "table.json").write_text(json.dumps(answer, indent=2), encoding="utf-8")
    print(json.dumps(answer, indent=2))


if __name__ == "__main__":
    main()
