"""Every method with everyone taking part, and with 20 % dropouts and 30 % stragglers: accuracy, and what was charged.

    python scripts/compare_participation.py --out /tmp/participation

MNIST, ten clients, Dirichlet(0.1), small CNN, 200 rounds, averaged weights, seed 0. Private: σ = 1, q = 0.05;
FedFair, which has no private form, with one local epoch. Finished runs are kept and not run again.
"""

import argparse
import json
from collections import Counter
from pathlib import Path

from fedfdp.algorithms import ALGORITHMS
from fedfdp.runs import config
from fedfdp.runs.build import federation_of, launch
from fedfdp.runs.folder import RunFolder
from fedfdp.training.participation import Participation

COMMON = ["rounds=200", "eval_every=200", "seed=0", "server.average=0.95"]
PRIVATE = ["privacy.sigma=1.0", "privacy.epsilon=20", "privacy.accountant=rdp"]
OWN = {
    "fedfair": ["privacy=none", "algorithm.lr=0.1", "algorithm.local_epochs=1", "rounds=40", "server.average=0.9"],
    "feddyn": ["algorithm.alpha=0.03"],
    "qffl": ["algorithm.q_f=0.5"],
    # With C = 0.1 its rule asks for 100 steps a round and the budget is gone in six; the step η·C is the same here.
    "ali_dpfl": ["algorithm.round_budget=200", "algorithm.step_budget=600", "privacy.clip=1.0", "algorithm.lr=1.6"],
}
AWAY = ["participation.dropout=0.2", "participation.stragglers=0.3"]


def settings(method: str, away: bool) -> config.Config:
    private = [] if method == "fedfair" else PRIVATE
    overrides = [f"algorithm.name={method}", *COMMON, *private, *OWN.get(method, []), *(AWAY if away else [])]
    return config.load("default", overrides)


def run(method: str, away: bool, folder: Path) -> dict:
    if (folder / "summary.json").exists():
        return RunFolder(folder).summary()
    return launch(settings(method, away), out=folder, resume=(folder / "run.json").exists()).summary


def charges_are_right(method: str, away: bool, folder: Path, rounds: int) -> bool:
    """Whether every client was charged in exactly the rounds it was there for."""
    c = settings(method, away)
    names = [client.name for client in federation_of(c).clients]
    rule = c.participation if away else Participation()
    expected = Counter(n for t in range(rounds) for n in rule.round(names, seed=c.seed, round=t).there)
    lines = (json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines())
    return Counter(line["client"] for line in lines if "round" in line) == expected


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    print("| method | everyone | with dropouts and stragglers | ledgers right | ε of the second |")
    print("| --- | ---: | ---: | --- | ---: |")
    for method in ALGORITHMS:
        cells, right, spent = [], [], None
        for away in (False, True):
            folder = out / f"{method}-{'away' if away else 'all'}"
            summary = run(method, away, folder)
            cells.append(f"{summary['accuracy']:.2%}")
            if summary["epsilon"] is not None:
                right.append(charges_are_right(method, away, folder, summary["rounds"]))
                spent = f"{summary['epsilon']:.2f}"
        ledgers = "no ledger" if not right else "yes" if all(right) else "NO"
        print(f"| {method} | {' | '.join(cells)} | {ledgers} | {spent or 'none'} |", flush=True)


if __name__ == "__main__":
    main()
