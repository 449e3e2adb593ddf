"""Terms that a node's policy allows, made ready to compute with. Reads no record itself."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from fedfdp.algorithms.parts import Parts, in_parts
from fedfdp.core.errors import SettingError
from fedfdp.core.records import Weights
from fedfdp.core.settings import parse
from fedfdp.data import Federation
from fedfdp.engines.flower.policy import NodeConfig, RefusalError
from fedfdp.engines.flower.terms import Terms, build_model, check_size, frozen_digest, learner_of, try_out
from fedfdp.engines.local import LocalEngine
from fedfdp.features import whole as with_features
from fedfdp.models import Model
from fedfdp.privacy.ledger import LedgerBook
from fedfdp.privacy.noise.randomness import Seeded
from fedfdp.privacy.noise.secure import Secure


@dataclass(frozen=True)
class Agreed:
    """What a node computes with under some terms, and the names and shapes of the weights that cross the network."""

    engine: LocalEngine
    template: Weights


def agreed(
    text: str,
    config: NodeConfig,
    federation: Federation,
    *,
    mapped: Callable[[nn.Module], Federation],
    book: LedgerBook,
) -> Agreed:
    """Raises where the policy does not allow the terms, or they make no sense.

    `mapped` gives the records as features; it is called last, when all else was found to be in order.
    """
    terms, policy = Terms.read(text), config.policy
    policy.check_names(terms)
    method, privacy = terms.method(), terms.dpsgd()
    method.check_privacy(privacy)
    wanted, front = parse(Model, terms.model, "model"), terms.front()
    width = (wanted.widths or {}).get(config.name, 1.0)
    if width > config.width:
        raise RefusalError(f"width = {config.width:g} is what this node can hold; asked for {width:g}")
    differ = wanted.own is not None or wanted.widths is not None
    method = in_parts(method, wanted.own or ()) if differ else method
    check_size(terms.model, federation, front, most=policy.max_weights, width=width)
    model = build_model(terms.model, federation, front, seed=terms.start, width=width)
    if terms.frozen and terms.frozen != frozen_digest(with_features(front, model)):
        fix = "both sides must have the same file of it and the same version of torch"
        raise SettingError("model", terms.model.get("name"), "its frozen part is not the coordinator's", fix)
    learner = learner_of(model, federation, front, in_parts=differ, output=wanted.output)
    if isinstance(method, Parts):
        method.check(learner.initial())  # a round in which nothing is shared would cost ε all the same
    if privacy is not None:
        try_out(learner, privacy, federation, front)
    engine = LocalEngine(
        federation if front is None else mapped(front),
        learner,
        method,
        privacy=privacy,
        randomness=Secure() if terms.seed is None else Seeded(terms.seed),
        book=None if privacy is None else book,
        fused=False,
    )
    return Agreed(engine, method.shared(learner.initial()) if isinstance(method, Parts) else learner.initial())
