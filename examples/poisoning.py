"""Poisoned holders: 2 of 10 send scaled or flipped updates. Accuracy with the mean and with each robust rule.

    python examples/poisoning.py        # the table of docs/methods.md

The digits of scikit-learn, dealt out by Dirichlet(100) (about alike), at ε = 8 for every record and without privacy.
Beside each accuracy, who was named: what summary.json, the terminal and the report name.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace

import torch

import fedfdp
from fedfdp.core import weights as w
from fedfdp.data import load
from fedfdp.engines.local import LocalEngine

ATTACKS = {"nobody": 1.0, "scaled by 20": 20.0, "flipped": -1.0, "flipped and scaled by 10": -10.0}
RULES = (None, "median", "trimmed", "norm")


def poisoned_engine(names: tuple[str, ...], factor: float) -> type[LocalEngine]:
    """An engine whose clients of these names multiply what they send."""

    class Poisoned(LocalEngine):
        def round(self, *given, **options) -> Iterator:
            for upload, memory in super().round(*given, **options):
                bad = upload.client in names
                yield replace(upload, update=w.multiply(upload.update, factor)) if bad else upload, memory

    return Poisoned


def accuracy(attack: str, rule: str | None, *, private: bool, beta: float = 100.0, rounds: int = 60) -> dict:
    """The summary of one run in which clients 2 and 7 of 10 attack."""
    holders = fedfdp.Federation.partition(load("digits"), clients=10, beta=beta, seed=0)
    torch.manual_seed(0)
    return fedfdp.train(
        torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)),
        holders,
        algorithm=fedfdp.FedAvg(),
        privacy=fedfdp.DPSGD(epsilon=8.0) if private else None,
        rounds=rounds,
        server=fedfdp.ServerOptimizer(robust=rule),
        engine=poisoned_engine((holders.names[2], holders.names[7]), ATTACKS[attack]),
        eval_every=rounds,
        threads=1,
    ).summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--beta", type=float, default=100.0)
    options = parser.parse_args()
    for private in (True, False):
        print(f"\n{'ε = 8' if private else 'without privacy'}: accuracy, how many of the two were named + others")
        print("| attack | " + " | ".join(rule or "mean" for rule in RULES) + " |\n| --- |" + " ---: |" * len(RULES))
        for attack in ATTACKS:
            cells = []
            for rule in RULES:
                try:
                    found = accuracy(attack, rule, private=private, beta=options.beta, rounds=options.rounds)
                except fedfdp.DivergedError as diverged:
                    found = {**diverged.result.summary, "accuracy": None}
                names = set(found.get("robust", {}).get("named", {}))
                right = names & {"client-2", "client-7"}
                shown = "diverged" if found["accuracy"] is None else f"{found['accuracy']:.1%}"
                cells.append(f"{shown}, {len(right)} + {len(names - right)}" if rule else shown)
            print(f"| {attack} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
