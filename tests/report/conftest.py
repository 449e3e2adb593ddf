"""Run folders as runs leave them, written by hand so that every number is known beforehand."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w


@pytest.fixture
def write_run(tmp_path: Path) -> Callable[..., Path]:
    def write(
        name: str = "run",
        *,
        names: list[str] | None = None,
        rounds: tuple[int, ...] = (2, 4, 6),
        finished: bool = True,
        private: bool = True,
        regression: bool = False,
        elsewhere: bool = False,
        noted: bool = True,
        classes: int = 10,
        seed: int = 0,
        result: dict[str, Any] | None = None,
        settings: dict[str, Any] | None = None,
    ) -> Path:
        path, draw = tmp_path / name, random.Random(f"{name} {seed}")
        path.mkdir(parents=True)
        names = names if names is not None else [f"client-{i}" for i in range(4)]
        config = {
            "name": name.replace("/", "-"), "seed": seed, "rounds": max(rounds, default=6),
            "engine": "flower" if elsewhere else "local", "data": {"source": "digits"}, "algorithm": {"name": "fedfdp"},
            **({"privacy": {"epsilon": 3.5, "delta": 1e-5, "sigma": 2.0, "accountant": "pld"}} if private else {}),
            **(settings or {}),
        }  # fmt: skip
        (path / "config.toml").write_text(tomli_w.dumps(config))
        (path / "run.json").write_text("{}")
        history = []
        for at in rounds:
            accuracy = [None if regression or elsewhere else draw.random() for _ in names]
            loss = [3 * draw.random() for _ in names]
            known = [a for a in accuracy if a is not None]
            history.append({
                "round": at, "accuracy": sum(known) / len(known) if known else None, "loss": sum(loss) / len(loss),
                "psi": draw.random() / 10, "worst_accuracy": min(known, default=None), "worst_loss": max(loss),
                "epsilon": at / 7 if private else None, "clients": {"loss": loss, "accuracy": accuracy},
            })  # fmt: skip
        (path / "metrics.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in history))
        records = [10 + 3 * i for i in range(len(names))]
        if noted:
            counts = [[n if k == i % classes else 0 for k in range(classes)] for i, n in enumerate(records)]
            held = {"names": names, "train": records, "test": None if elsewhere else [n // 3 for n in records],
                    "classes": None if regression or elsewhere else counts}  # fmt: skip
            (path / "clients.json").write_text(json.dumps(held))
        if finished:
            last = {k: v for k, v in history[-1].items() if k not in ("round", "clients")}
            summary = {**last, "rounds": rounds[-1], "seconds": 12.5, "algorithm": "fedfdp", "data": "digits",
                       "delta": 1e-5 if private else None, "epsilon_budget": 3.5 if private else None,
                       **({"engine": "flower", "evaluated_clients": 0} if elsewhere else {}),
                       **(result or {})}  # fmt: skip
            (path / "summary.json").write_text(json.dumps(summary))
        if private and finished:
            (path / "privacy.json").write_text(json.dumps(_statement(names, records, rounds[-1])))
        return path

    return write


def _statement(names: list[str], records: list[int], rounds: int) -> dict[str, Any]:
    return {
        "epsilon": 0.8571428571428571, "epsilon_replace_one": 1.5, "delta": 1e-5, "accountant": "pld",
        "unit": "one record of one client", "adjacency": "zero-out", "algorithm": "fedfdp", "rounds": rounds,
        "mechanism": {"name": "Poisson-subsampled Gaussian", "clip": 0.1, "sigma": 2.0, "sigma_beside": [5.0],
                      "sampling": {"kind": "Poisson", "q": 0.05, "batch": "secret"}},
        "released": {"update": "the change of the weights"}, "assumptions": ["counts are public"],
        "not_covered": ["tuning"], "warnings": ["this was a simulation"], "versions": {"fedfdp": "0.1.0"},
        "clients": [{"client": name, "records": n, "epsilon": 0.8571428571428571, "epsilon_replace_one": 1.5,
                     "budget": 3.5} for name, n in zip(names, records, strict=True)],
    }  # fmt: skip
