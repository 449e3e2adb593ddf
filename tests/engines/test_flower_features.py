"""Features across machines: every node maps its own records, and says nothing of them."""

from dataclasses import replace

import torch

import fedfdp
from fedfdp.engines.flower.policy import Policy
from fedfdp.runs.build import launch
from fedfdp.runs.released import load

COSINES = "features.name=feature_maps:Cosines"
POLICY = Policy(epsilon=8.0, max_q=0.2, evaluate=True, unsafe_seeded=True)


def test_local_and_across_machines_are_the_same_to_the_bit(deployment, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDFDP_DATA", str(tmp_path / "cache"))
    across = deployment(COSINES, policy=replace(POLICY, features=("feature_maps:Cosines",)))
    there, here = across.run(out=tmp_path / "run"), launch(across.config)
    assert torch.equal(there.model.head[1].weight, here.model.head[1].weight)
    assert there.model.head[1].weight.shape == (10, 20)
    assert there.summary["features"] == "feature_maps:Cosines"
    assert there.summary["task"]["input_shape"] == list(across.federation.input_shape)
    x = across.federation.x[:5]
    assert torch.equal(load(tmp_path / "run")(x), there.model(x))
    assert list((across.base / "client-0" / "features").glob("*.npy"))  # the holder's own, in its own folder


def test_a_map_that_is_not_listed_is_not_even_imported(deployment):
    across = deployment("features.name=feature_maps:Cosines", "rounds=1")
    node = across.nodes[100]
    with_map = replace(across.config, features=fedfdp.Features("no_such_package:Map"))
    from fedfdp.engines.flower.messages import Question
    from fedfdp.engines.flower.terms import Terms

    terms = Terms.of(with_map.algorithm, with_map.model, with_map.privacy, 0, seeded=True, features=with_map.features)
    answer = node.answer(Question("train", "run", terms.to_json()))
    assert answer.status == "refused"
    assert "policy.features" in answer.reason


def test_what_goes_wrong_with_records_stays_at_the_node(deployment):
    from fedfdp.engines.flower.messages import COULD_NOT, Question
    from fedfdp.engines.flower.terms import Terms

    across = deployment("rounds=1", policy=replace(POLICY, features=("feature_maps:Broken",)))
    node, config = across.nodes[100], across.config
    broken = fedfdp.Features("feature_maps:Broken")
    terms = Terms.of(config.algorithm, config.model, config.privacy, 0, seeded=True, features=broken)
    answer = node.answer(Question("train", "run", terms.to_json()))
    assert (answer.status, answer.reason) == ("refused", COULD_NOT)
    assert node.stopped
