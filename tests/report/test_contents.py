"""What a report shows is what the run folders hold, and nothing that they do not."""

import json
import statistics

import pytest

from fedfdp.core.errors import RunError
from fedfdp.report.contents import document
from fedfdp.runs.folder import RunFolder


def facts(*paths):
    return document([RunFolder(path) for path in paths])


def test_every_number_is_the_folders_own(write_run):
    path = write_run()
    run = facts(path)["runs"][0]
    summary = json.loads((path / "summary.json").read_text())
    history = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    held = json.loads((path / "clients.json").read_text())
    for name in ("accuracy", "psi", "loss", "worst_accuracy", "epsilon", "delta", "seconds"):
        assert run["result"][name] == summary[name]
    for name in ("round", "accuracy", "psi", "epsilon", "worst_accuracy"):
        assert run["history"][name] == [entry[name] for entry in history]
    for name in ("accuracy", "loss"):
        assert run["clients"][name] == [entry["clients"][name] for entry in history]
    for name in ("names", "train", "test", "classes"):
        assert run["clients"][name] == held[name]
    stated = json.loads((path / "privacy.json").read_text())
    assert {name: run["privacy"][name] for name in stated} == stated
    assert run["privacy"]["guarantee"].startswith("Every record of every client is protected with ε = 0.8571")
    assert (run["round"], run["finished"], run["private"], run["elsewhere"]) == (6, True, True, False)


def test_what_is_no_number_becomes_null(write_run):
    path = write_run(finished=False)
    with open(path / "metrics.jsonl", "a") as file:
        file.write('{"round": 8, "accuracy": NaN, "psi": Infinity, "clients": {"loss": [NaN, 1.0]}}\n')
        file.write('5\n{"no": "round"}\n{"round": 9, "torn')
    run = facts(path)["runs"][0]
    assert run["history"]["accuracy"][-1] is None
    assert run["history"]["psi"][-1] is None
    assert run["history"]["round"] == [2, 4, 6, 8]
    assert run["clients"]["loss"][-1] == [None, 1.0]
    assert run["clients"]["accuracy"][-1] == []


def test_an_unfinished_run_is_read_up_to_its_last_evaluation(write_run):
    run = facts(write_run(finished=False))["runs"][0]
    assert (run["finished"], run["round"], run["rounds"], run["privacy"]) == (False, 6, 6, None)
    assert run["private"]
    assert run["result"]["epsilon"] == 6 / 7
    assert (run["result"]["delta"], run["result"]["epsilon_budget"]) == (1e-5, 3.5)
    begun = facts(write_run("begun", finished=False, rounds=()))["runs"][0]
    assert (begun["round"], begun["history"]["round"]) == (0, [])


def test_a_folder_without_a_note_of_its_clients_has_names_and_records_from_the_statement(write_run):
    clients = facts(write_run(noted=False, names=["north", "south"]))["runs"][0]["clients"]
    assert (clients["names"], clients["train"], clients["classes"], clients["noted"]) == (
        ["north", "south"], [10, 13], None, False,
    )  # fmt: skip
    bare = facts(write_run("bare", noted=False, private=False))["runs"][0]["clients"]
    assert bare["names"] == ["client 0", "client 1", "client 2", "client 3"]
    assert bare["train"] is None


def test_runs_of_the_same_name_are_told_apart_and_one_given_twice_is_one(write_run, tmp_path):
    a, b = write_run("x/run"), write_run("y/run")
    made = facts(a, b, a)
    assert [run["name"] for run in made["runs"]] == ["x/run", "y/run"]
    assert [run["number"] for run in made["runs"]] == [1, 2]


def test_of_long_runs_single_clients_are_shown_at_a_hundred_evaluations_at_most(write_run):
    run = facts(write_run(rounds=tuple(range(1, 252))))["runs"][0]
    assert len(run["history"]["round"]) == 251
    assert len(run["clients"]["round"]) == len(run["clients"]["loss"]) <= 100
    assert run["clients"]["round"][-1] == 251


def test_the_front_by_hand(write_run):
    def run(name, accuracy, psi, epsilon, **rest):
        return write_run(name, result={"accuracy": accuracy, "psi": psi, "epsilon": epsilon, **rest})

    runs = [
        run("1", 0.90, 0.10, 2.0),  # most accurate at ε = 2
        run("2", 0.90, 0.20, 2.0),  # beaten by 1
        run("3", 0.80, 0.05, 2.0),  # fairest
        run("4", 0.70, 0.30, 1.0),  # most private
        run("5", 0.90, 0.10, None),  # beaten by 1, which is private
        run("6", 0.10, 0.90, 9.0, data="other"),  # alone on its data
        write_run("7", finished=False),  # takes no part
        run("8", None, None, 1.0, loss=None),  # diverged
        run("9", 0.90, 0.10, 2.0),  # as good as 1: neither beats the other
    ]
    assert facts(*runs)["front"] == [1, 3, 4, 6, 9]


def test_without_accuracy_the_loss_decides(write_run):
    runs = [write_run(str(n), regression=True, result={"loss": loss, "psi": 0.1, "epsilon": 1.0}) for n, loss in
            enumerate((0.5, 0.4))]  # fmt: skip
    assert facts(*runs)["front"] == [2]


def test_means_over_seeds(write_run):
    accuracies = [0.81, 0.84, 0.9]
    runs = [write_run(f"s{seed}", seed=seed, result={"accuracy": a}) for seed, a in enumerate(accuracies)]
    other = write_run("other", settings={"algorithm": {"name": "fedavg"}})
    (group,) = facts(*runs, other)["seeds"]
    assert group["runs"] == [1, 2, 3]
    assert group["mean"]["accuracy"] == pytest.approx(0.85, abs=1e-15)
    assert group["spread"]["accuracy"] == statistics.stdev(accuracies)
    assert group["mean"]["psi_train"] is None
    assert facts(*runs, other)["differing"] == ["seed", "algorithm.name"]


def test_a_seed_of_64_bits_keeps_its_digits(write_run):
    assert facts(write_run(seed=2**62 + 1))["runs"][0]["settings"]["seed"] == "4611686018427387905"


def test_a_damaged_folder_is_one_clear_error(write_run):
    path = write_run()
    (path / "summary.json").write_text("{torn")
    with pytest.raises(RunError, match=r"summary\.json cannot be read"):
        facts(path)


def test_a_run_notes_what_each_client_holds(digits, two_clients, tmp_path):
    import torch

    from fedfdp import FedAvg, train

    train(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)), digits, algorithm=FedAvg(lr=0.1), rounds=1,
          out=tmp_path / "digits")  # fmt: skip
    held = RunFolder(tmp_path / "digits").clients()
    assert held is not None
    for client, name, records, test, counts in zip(
        digits.clients, held["names"], held["train"], held["test"], held["classes"], strict=True
    ):
        labels = digits.y[client.train.index].tolist()
        assert (name, records, test) == (client.name, len(client.train), len(client.test))
        assert counts == [labels.count(k) for k in range(10)]
    train(torch.nn.Linear(2, 1), two_clients, algorithm=FedAvg(lr=0.1), rounds=1, out=tmp_path / "numbers")
    assert RunFolder(tmp_path / "numbers").clients() == {
        "names": ["a", "b"], "train": [2, 1], "test": [2, 1], "classes": None, "class_names": [],
    }  # fmt: skip
    run = facts(tmp_path / "numbers")["runs"][0]
    assert (run["private"], run["privacy"], run["result"]["accuracy"]) == (False, None, None)


def test_across_machines_only_declared_records_are_noted():
    from fedfdp.engines.flower.messages import Hello
    from fedfdp.engines.flower.roster import Roster

    said = {name: Hello(name, records, (2,), 2, 2, True) for name, records in (("north", 7), ("south", 3))}
    held = Roster(("north", "south", "west"), None, said).holdings()
    assert held == {"names": ["north", "south", "west"], "train": [7, 3, 0], "test": None, "classes": None}


def test_the_hash_of_the_records_is_not_shown(write_run):
    run = write_run(settings={"data": {"source": "holders.csv", "content": "c0ffee"}})
    assert facts(run)["runs"][0]["settings"]["data.source"] == "holders.csv"
    assert "c0ffee" not in str(facts(run))


def test_groups_have_their_rates_and_each_clients_gaps(write_run):
    groups = {
        "column": "sex",
        "favourable": "yes",
        "names": ["f", "m"],
        "records": [4, 6],
        "favourable_records": [3, 3],
    }
    groups |= {"accuracy": [0.5, 0.8], "given": [0.75, 0.25], "recognised": [0.6, None]}
    path = write_run(result={"groups": groups, "parity_gap": 0.5, "opportunity_gap": None})
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    lines[-1]["clients"] |= {"parity_gap": [0.1, 0.2, None, 0.4], "opportunity_gap": [None] * 4}
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = facts(path)["runs"][0]["by_group"]
    assert {name: found[name] for name in groups} == groups
    assert (found["parity_gap"], found["opportunity_gap"]) == (0.5, None)
    assert found["clients"] == {"parity_gap": [0.1, 0.2, None, 0.4], "opportunity_gap": [None] * 4}
    assert facts(write_run("plain"))["runs"][0]["by_group"] is None
