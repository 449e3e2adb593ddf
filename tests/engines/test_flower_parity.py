"""The same config on both engines: the same weights to the bit, whatever the method, and the same numbers."""

import pytest
import torch

import fedfdp
from fedfdp.fairness.metrics import METRICS
from fedfdp.runs.build import launch


def same_weights(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


@pytest.mark.parametrize(
    "method",
    [
        ["algorithm.name=fedavg", "algorithm.lr=0.5"],
        ["algorithm.name=fedavg", "algorithm.lr=0.1", "privacy=none"],
        ["algorithm.name=scaffold", "algorithm.lr=0.5", "algorithm.local_steps=3"],
        ["algorithm.name=feddyn", "algorithm.lr=0.2", "algorithm.local_steps=2"],
        ["algorithm.name=qffl", "algorithm.lr=0.5"],
        ["algorithm.name=fedfdp", "algorithm.lr=0.5", "algorithm.loss_bound=mean", "algorithm.lam=0.5"],
        ["algorithm.name=afl", "algorithm.lr=0.5", "algorithm.mixture_rate=0.1", "participation.fraction=0.67"],
        ["algorithm.name=term", "algorithm.lr=0.5", "privacy=none"],
        ["algorithm.name=semivred", "algorithm.lr=0.5", "algorithm.smoothing=0.0"],
        ["algorithm.name=fedmgda", "algorithm.lr=0.5", "algorithm.local_steps=2"],
        ["algorithm.name=fedfv", "algorithm.lr=0.5"],
        ["algorithm.name=mrmtl", "algorithm.lr=0.5", "participation.fraction=0.67"],
        ["algorithm.name=ditto", "algorithm.lr=0.5", "algorithm.local_steps=2"],
        ["algorithm.name=local", "algorithm.lr=0.1", "privacy=none"],
        ["algorithm.name=fedfdp", "algorithm.lr=0.5", "model.name=mlp", 'model.own=["3"]'],
        ["algorithm.name=fedavg", "algorithm.lr=0.5", "model.name=mlp", "model.widths.client-1=0.5"],
        ["algorithm.name=scaffold", "algorithm.lr=0.5", "model.name=mlp", "seed=7", 'model.trainable=["3"]'],
        ["algorithm.name=fedfdp", "algorithm.lr=0.5", "model.name=mlp", "seed=7", 'model.trainable=["3"]'],
        ["algorithm.name=fedfdp", "server.optimizer=adam", "server.average=0.9", "participation.fraction=0.67"],
    ],
    ids=lambda settings: " ".join(settings[:1] + settings[-1:]),
)
def test_local_and_across_machines_are_the_same_to_the_bit(deployment, method):
    across = deployment(*method)
    there, here = across.run(), launch(across.config)
    assert same_weights(there.model, here.model)
    for name in ("accuracy", "worst_accuracy", "epsilon", "rounds", "records", "clients", "weights", "sigma"):
        assert there.summary[name] == pytest.approx(here.summary[name], abs=1e-12), name
    for name in ("loss", "psi"):
        assert there.summary[name] == pytest.approx(here.summary[name], rel=1e-5), name
    assert there.summary["psi_train"] is None  # measures of training records never leave a node
    assert there.summary["engine"] == "flower"
    assert there.summary["evaluated_clients"] == 3


def test_every_key_of_a_local_summary_is_in_the_summary_across_machines(deployment):
    across = deployment("rounds=1")
    there, here = across.run().summary, launch(across.config).summary
    # The clients' own models stay with them, and nodes answer with loss and accuracy alone.
    told = {name for name in set(here) - set(there) if name in METRICS or name == "classes"}
    assert set(here) - set(there) == told


def test_a_run_folder_is_like_any_other(deployment, tmp_path):
    across = deployment("rounds=2")
    result = across.run(out=tmp_path / "run")
    found = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"config.toml", "run.json", "metrics.jsonl", "checkpoint", "summary.json", "model.safetensors"} <= found
    assert {"privacy.json", "privacy.md", "arrivals.jsonl"} <= found
    assert "this was a simulation" in (tmp_path / "run" / "privacy.md").read_text()  # seeded: the statement is void
    assert result.history[-1]["round"] == 2
    assert same_weights(fedfdp.load(tmp_path / "run"), result.model)


def test_only_what_is_trained_crosses_the_wire(deployment):
    """Of the MLP's 64·128 + 128 + 128·10 + 10 weights the last layer's 1,290, four bytes each, and a few names."""
    across = deployment("algorithm.name=fedavg", "algorithm.lr=0.5", "model.name=mlp", 'model.trainable=["3"]')
    sizes = []

    def note(node, message, reply):
        if message.metadata.message_type == "train":
            sizes.extend(len(m.content["record"]["record"].data) for m in (message, reply))
        return reply

    across.grid.tamper = note
    result = across.run()
    assert result.summary["weights"] == 1_290
    assert len(sizes) == 2 * 3 * 3
    assert all(4 * 1_290 < size < 4 * 1_290 + 600 for size in sizes)


def test_a_node_with_another_frozen_part_refuses(deployment, monkeypatch):
    from fedfdp.core.errors import RunError
    from fedfdp.engines.flower import agreed

    across = deployment("model.name=mlp", 'model.trainable=["3"]')
    real = agreed.build_model

    def other(*arguments, **options):
        return real(*arguments, **{**options, "seed": options["seed"] + 1})

    monkeypatch.setattr(agreed, "build_model", other)
    with pytest.raises(RunError, match="its frozen part is not the coordinator's"):
        across.run()
    everything = deployment("model.name=mlp")  # with nothing frozen, where a node started from does not matter
    assert everything.run().summary["rounds"] == 3
