"""Own parts, own models and narrower models at nodes: what crosses the wire, what stays, what is refused."""

import pytest
import safetensors.torch
import torch

from fedfdp.core import records
from fedfdp.core.errors import RunError, SettingError
from fedfdp.engines.flower.exchange import Exchange
from fedfdp.engines.flower.messages import Answer, Hello
from fedfdp.engines.flower.roster import Roster
from fedfdp.runs.build import launch

MLP = ("algorithm.name=fedavg", "algorithm.lr=0.5", "model.name=mlp")  # 64·128 + 128, then 128·10 + 10


def sizes_of(across) -> dict[str, set[int]]:
    """The bytes of every training message and its reply, by node."""
    found: dict[str, set[int]] = {}

    def note(node, message, reply):
        if message.metadata.message_type == "train":
            parts = [len(m.content["record"]["record"].data) for m in (message, reply)]
            found.setdefault(node.name, set()).update(parts)
        return reply

    across.grid.tamper = note
    return found


def test_a_head_never_crosses_the_wire_and_is_kept_by_its_node(deployment, tmp_path):
    across = deployment(*MLP, 'model.own=["3"]')
    sizes = sizes_of(across)
    across.run(out=tmp_path / "across")
    launch(across.config, out=tmp_path / "here")
    body = 4 * (64 * 128 + 128)
    assert all(body < size < body + 600 for found in sizes.values() for size in found)
    assert not (tmp_path / "across" / "own").exists()  # the coordinator has nobody's
    for name in across.federation.names:
        there = safetensors.torch.load_file(across.base / name / "model.safetensors")
        here = safetensors.torch.load_file(tmp_path / "here" / "own" / f"{name}.safetensors")
        assert torch.equal(there["3.weight"], here["3.weight"])
    files = (across.base / name / "model.safetensors" for name in ("client-0", "client-1"))
    heads = [safetensors.torch.load_file(file)["3.weight"] for file in files]
    assert not torch.equal(*heads)


def test_personal_models_stay_at_the_nodes_and_are_those_of_one_process(deployment, tmp_path):
    across = deployment("algorithm.name=mrmtl", "algorithm.lr=0.5", "rounds=4")
    across.run(out=tmp_path / "across")
    launch(across.config, out=tmp_path / "here")
    assert not (tmp_path / "across" / "own").exists()
    for name in across.federation.names:
        there = safetensors.torch.load_file(across.base / name / "model.safetensors")
        here = safetensors.torch.load_file(tmp_path / "here" / "own" / f"{name}.safetensors")
        assert all(torch.equal(there[part], here[part]) for part in here)


@pytest.mark.parametrize("own_parts", [False, True])
def test_who_protects_records_does_not_join_those_who_protect_persons(own_parts):
    """The statement is one for all: it would promise persons what one node gives to records alone."""
    roster = Roster(("north", "south"), Exchange(None), mixed=own_parts)
    for node, (name, unit) in enumerate([("north", "patient"), ("south", "record")]):
        said = Answer("ok", "", 0, record=records.to_bytes(Hello(name, 100, (4,), 2, 2, False, unit=unit)))
        roster._welcome(node, name, said)
    assert list(roster.hellos) == ["north"]
    assert roster.refused == {"south": "it was not let in: it protects each 'record', others each 'patient'"}


def test_a_node_that_declares_half_gets_and_sends_half(deployment):
    across = deployment(*MLP, widths={"client-2": 0.5})
    sizes = sizes_of(across)
    result = across.run()
    full, half = 4 * (64 * 128 + 128 + 128 * 10 + 10), 4 * (64 * 64 + 64 + 64 * 10 + 10)
    assert all(full < size < full + 600 for size in sizes["client-0"])
    assert all(half < size < half + 600 for size in sizes["client-2"])
    assert result.summary["weights"] == full // 4
    assert result.summary["evaluated_clients"] == 3


def test_a_node_is_not_given_more_than_it_can_hold(deployment, monkeypatch):
    from fedfdp.engines.flower import node as nodes

    across = deployment(*MLP, 'model.widths={"client-0" = 0.5}', widths={"client-2": 0.5}, quorum=3)
    real = nodes.Node._hello
    lie = lambda self: records.to_bytes(  # noqa: E731
        Hello(**{**vars(records.from_bytes(Hello, real(self))), "width": 1.0})
    )
    monkeypatch.setattr(nodes.Node, "_hello", lie)
    with pytest.raises(RunError, match=r"client-2: width = 0\.5 is what this node can hold; asked for 1"):
        across.run()


def test_widths_of_unknown_nodes_and_of_models_without_widths(deployment):
    with pytest.raises(SettingError, match=r"model\.widths\.clinic = 0\.5: no such node"):
        deployment(*MLP, "model.widths.clinic=0.5").run()
    with pytest.raises(SettingError, match="linear takes no width"):
        deployment("algorithm.name=fedavg", "model.widths.client-1=0.5").run()


@pytest.mark.parametrize(
    "settings",
    [("algorithm.name=mrmtl", "algorithm.lr=0.5"), (*MLP, 'model.own=["3"]')],
    ids=["mrmtl", "own head"],
)
def test_nodes_and_coordinator_that_were_cut_short_go_on_with_the_holders_own_weights(deployment, tmp_path, settings):
    """The coordinator stops within round 3; all nodes are started again from their disks."""
    whole, cut = deployment(*settings, "rounds=4"), deployment(*settings, "rounds=4")
    whole.run(out=tmp_path / "whole")

    def stop(node, message, reply):
        if message.metadata.message_type == "train" and stop.answered >= 7:
            raise KeyboardInterrupt
        stop.answered += message.metadata.message_type == "train"
        return reply

    stop.answered = 0
    cut.grid.tamper = stop
    with pytest.raises(KeyboardInterrupt):
        cut.run(out=tmp_path / "cut")
    cut.stop()
    cut.nodes.clear()
    cut.start()
    cut.run(out=tmp_path / "cut", resume=True)
    for name in cut.federation.names:
        one, other = (safetensors.torch.load_file(dep.base / name / "model.safetensors") for dep in (whole, cut))
        assert all(torch.equal(one[part], other[part]) for part in one)
