"""The coordinator of a run across machines: the same trainer, checkpoints and run folder as in one process.

It has no records and no ledgers: nodes keep both, and say what they have spent.
"""

import hashlib
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from flwr.serverapp import Grid

from fedfdp.algorithms.parts import check_nested, in_parts
from fedfdp.core.errors import SettingError, nearest
from fedfdp.core.records import digest
from fedfdp.engines.flower.accounts import Accounts, read_register
from fedfdp.engines.flower.engine import Arrivals, FlowerEngine
from fedfdp.engines.flower.exchange import Exchange
from fedfdp.engines.flower.roster import Roster
from fedfdp.engines.flower.settings import Flower
from fedfdp.engines.flower.superlink import Meter
from fedfdp.engines.flower.terms import Terms, build_model, frozen_digest, learner_of
from fedfdp.fairness.performance import Performance
from fedfdp.features import about, whole
from fedfdp.features.mapped import digest_of
from fedfdp.models import Model
from fedfdp.runs import config as configs
from fedfdp.runs.assemble import Started, carry_out, check_folder
from fedfdp.runs.build import fitted
from fedfdp.runs.config import Config
from fedfdp.runs.session import Result, Update
from fedfdp.training.rounds import Plan

log = logging.getLogger("fedfdp.server")

ARRIVALS, WAITING = "arrivals.jsonl", "waiting.json"


@dataclass(frozen=True)
class Network:
    """How to reach the nodes: Flower's grid and, where the coordinator is the SuperLink, who is who on it."""

    grid: Grid
    ids: dict[str, int]
    meter: Meter | None = None
    check: Callable[[], None] | None = None  # raises where waiting for nodes is in vain
    owners: Mapping[int, str] = field(default_factory=dict)  # whose each node id is, where keys are registered


def load(source: str, overrides: list[str] | None = None) -> tuple[Config, Flower]:
    """A run's config and its [flower] section, whose paths are relative to the file."""
    config = configs.load(source, overrides or [])
    found = (config.flower or Flower()).below(Path(source).parent)
    return replace(config, engine="flower", flower=found), found


def coordinate(
    config: Config,
    settings: Flower,
    network: Network,
    *,
    out: Path | None = None,
    resume: bool = False,
    on_update: Callable[[Update], None] | None = None,
    say: Callable[[str], None] = log.info,
) -> Result:
    """Runs a config with the nodes of `settings`; every round is checkpointed, so that none is paid for twice."""
    check(config, settings)
    if out is not None:
        check_folder(out, resume)
    exchange = Exchange(network.grid, dict(network.ids), network.meter, check=network.check, owners=network.owners)
    roster = Roster(tuple(settings.nodes), exchange, name=config.data.source, mixed=config.model.own is not None)
    roster.gather(settings.enough, settings.wait, say=say)
    config = fitted(config, roster)  # by what the nodes declare
    assert config.rounds is not None
    assert config.eval_every is not None
    performance = Performance.of(config.metric)
    performance.check(roster.classes)  # nodes give loss and accuracy alone
    method, privacy = config.algorithm, config.privacy
    wanted = _with_widths(config.model, roster)
    terms = Terms.of(method, wanted, privacy, config.seed, seeded=settings.unsafe_seeded, features=config.features)
    front = terms.front()
    model = build_model(terms.model, roster, front, seed=config.seed)
    terms = replace(terms, frozen=frozen_digest(whole(front, model)))
    differ = wanted.own is not None or wanted.widths is not None
    learner = learner_of(model, roster, front, device=config.device, in_parts=differ, output=config.model.output)
    template, narrow = learner.initial(), {}
    if differ:
        method = in_parts(method, wanted.own or ())
        template = method.shared(template)
        for name, width in (wanted.widths or {}).items():
            narrower = build_model(terms.model, roster, front, seed=config.seed, width=width)
            other = learner_of(narrower, roster, front, output=config.model.output)
            narrow[name] = method.shared(other.initial())
            check_nested(name, narrow[name], template)
    plan = Plan(
        method,
        privacy,
        config.server,
        config.participation,
        config.rounds,
        config.eval_every,
        config.seed,
        repeatable=settings.unsafe_seeded,
    )

    @contextmanager
    def start(folder: Path | None) -> Iterator[Started]:
        accounts = None
        if privacy is not None:
            budgets = {name: privacy.budget(name) for name in roster.names}
            register = Path(settings.register) if settings.register else None
            waiting = folder / WAITING if folder else None
            accounts = Accounts(
                privacy.delta, privacy.accountant, budgets, method.adaptive, register=register, waiting=waiting
            )
        engine = FlowerEngine(
            roster,
            method,
            template,
            privacy=privacy,
            performance=performance,
            terms=terms.to_json(),
            settings=settings,
            arrivals=Arrivals.open(folder / ARRIVALS if folder else None, secrets.token_hex(16), accounts),
            accounts=accounts,
            narrow=narrow,
        )
        yield Started(engine, engine.evaluator, accounts)

    more = [
        text for text in (roster.like.inputs, roster.like.task) if text
    ]  # none in runs with one input and one class
    identity = {
        "settings": hashlib.sha256(terms.to_json().encode()).hexdigest(),
        "data": digest(list(roster.names), roster.input_shape, roster.classes, *more),
        "weights": digest(learner.initial()),
        **({} if front is None else {"features": digest_of(front)}),
    }
    result = carry_out(
        plan,
        roster,
        learner,
        start,
        identity=identity,
        config=config.to_dict(),
        out=out,
        resume=resume,
        threads=config.threads,
        on_update=on_update,
        about=about(config.features),
    )
    return replace(result, model=whole(front, result.model))


def _with_widths(model: Model, roster: Roster) -> Model:
    """The model with what each node can hold: no more than the config says, no more than the node says."""
    given = model.widths or {}
    for name in given:
        if name not in roster.names:
            known = nearest(name, roster.names)
            raise SettingError(f"model.widths.{name}", given[name], f"no such node; {known}")
    found = {name: min(given.get(name, 1.0), roster.widths.get(name, 1.0)) for name in {**given, **roster.widths}}
    return replace(model, widths=found) if found else model


def check(config: Config, settings: Flower) -> None:
    """Raises for settings that are for one process alone, and for what would end the run once nodes have paid."""
    for name, given in ("loss", config.loss), ("metric", config.metric):
        if given is not None and ":" in given:
            allowed = "not across machines: a node runs no code that its owner did not install and list"
            raise SettingError(name, given, allowed, "leave it out")
    if not settings.nodes:
        raise SettingError("flower.nodes", {}, "the nodes by name, each with its public key", "see docs/deploy.md")
    if settings.register is not None:
        read_register(Path(settings.register))
    for name in ("dropout", "stragglers"):
        if getattr(config.participation, name):
            allowed = "for simulations: across machines nodes are away or late by themselves"
            raise SettingError(f"participation.{name}", getattr(config.participation, name), allowed, "leave it out")
