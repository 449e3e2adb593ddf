"""The coordinator of a run across machines: the same trainer, checkpoints and run folder as at home, other clients.

`app` is the same as a Flower ServerApp, for a stock SuperLink whose run config names the config file.
"""

import hashlib
import logging
import secrets
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedfdp.algorithms.base import Population
from fedfdp.core.errors import SettingError
from fedfdp.core.records import digest
from fedfdp.engines.flower.accounts import Accounts
from fedfdp.engines.flower.engine import Arrivals, FlowerEngine
from fedfdp.engines.flower.evaluation import RemoteEvaluator
from fedfdp.engines.flower.exchange import Exchange
from fedfdp.engines.flower.roster import Roster
from fedfdp.engines.flower.settings import Flower
from fedfdp.engines.flower.superlink import Meter
from fedfdp.engines.flower.terms import Terms, build_model, frozen_digest, learner_of
from fedfdp.fairness.performance import Performance
from fedfdp.privacy.noise.randomness import Seeded
from fedfdp.privacy.noise.secure import Secure
from fedfdp.runs import config as configs
from fedfdp.runs.config import Config
from fedfdp.runs.session import Result, Session, Update, open_folder
from fedfdp.training.rounds import Progress, Trainer

log = logging.getLogger("fedfdp.server")

ARRIVALS = "arrivals.jsonl"


@dataclass(frozen=True)
class Network:
    """How to reach the nodes: Flower's grid and, where the coordinator is the SuperLink, who is who on it."""

    grid: Grid
    ids: dict[str, int]
    meter: Meter | None = None
    check: Callable[[], None] | None = None  # raises where waiting for nodes is in vain


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
    config = config.resolved()
    _check(config, settings)
    assert config.rounds is not None
    assert config.eval_every is not None
    exchange = Exchange(network.grid, dict(network.ids), network.meter, check=network.check)
    roster = Roster(tuple(settings.nodes), exchange, name=config.data.source)
    roster.gather(settings.enough, settings.wait, say=say)
    performance = Performance.of(config.metric)
    performance.check(roster.like.classes)
    like, terms = roster.like, Terms.of(config, seeded=settings.unsafe_seeded)
    model = build_model(
        terms.model,
        input_shape=like.input_shape,
        classes=like.classes,
        outputs=like.outputs,
        seed=config.seed,
        tokens=like.tokens,
    )
    terms = replace(terms, frozen=frozen_digest(model))
    learner = learner_of(model, like.classes, config.device)
    first = learner.initial()
    identity = {
        "settings": hashlib.sha256(terms.to_json().encode()).hexdigest(),
        "data": digest(list(roster.names), like.input_shape, like.classes),
        "weights": digest(first),
    }
    accounts = None
    if privacy := config.privacy:
        budgets = {name: privacy.budget(name) for name in roster.names}
        accounts = Accounts(privacy.delta, privacy.accountant, budgets, config.algorithm.adaptive)
    with ExitStack() as stack:
        if config.threads:
            stack.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(config.threads)
        folder = None
        if out is not None:
            folder = open_folder(out, resume, config.to_dict(), identity)
            stack.enter_context(folder.locked())
        arrivals = Arrivals.open(folder.path / ARRIVALS if folder else None, secrets.token_hex(16), accounts)
        engine = FlowerEngine(
            roster,
            config.algorithm,
            first,
            privacy=config.privacy,
            randomness=Seeded(config.seed) if settings.unsafe_seeded else Secure(),
            terms=terms.to_json(),
            settings=settings,
            arrivals=arrivals,
            accounts=accounts,
        )
        evaluator = RemoteEvaluator(engine, performance)
        sizes = [hello.records for hello in roster.hellos.values()]
        population = Population(len(roster), sum(sizes), min(sizes), like.classes)
        trainer = Trainer(
            config.algorithm,
            engine,
            cast(Any, evaluator),
            server=config.server,
            participation=config.participation,
            seed=config.seed,
            progress=Progress(config.algorithm.init(first, population, config.privacy)),
            rounds=config.rounds,
            eval_every=config.eval_every,
        )
        run = _Coordinated(
            trainer, learner, cast(Any, roster), cast(Any, engine), cast(Any, accounts), folder, identity
        )

        def each(update: Update) -> None:
            run._save()
            if on_update is not None:
                on_update(update)

        return run.go(each)


class _Coordinated(Session):
    """A run whose clients are elsewhere; it says which of them let the model be judged on raw test records."""

    def _summary(self) -> dict[str, Any]:
        evaluator = cast(RemoteEvaluator, self.trainer.evaluator)
        return {**super()._summary(), "engine": "flower", "evaluated_clients": evaluator.answered}

    def _about_clients(self) -> dict[str, Any]:
        evaluator = cast(RemoteEvaluator, self.trainer.evaluator)
        accounts = cast(Accounts | None, self.book)
        return {"evaluated": evaluator.opted_in(), "remarks": tuple(accounts.differences() if accounts else ())}


def _check(config: Config, settings: Flower) -> None:
    for name, given in ("loss", config.loss), ("metric", config.metric):
        if given is not None and ":" in given:
            allowed = "not across machines: a node runs no code that its owner did not install and list"
            raise SettingError(name, given, allowed, "leave it out")
    if not settings.nodes:
        raise SettingError("flower.nodes", {}, "the nodes by name, each with its public key", "see docs/deploy.md")
    for name in ("dropout", "stragglers"):
        if getattr(config.participation, name):
            allowed = "for simulations: across machines nodes are away or late by themselves"
            raise SettingError(f"participation.{name}", getattr(config.participation, name), allowed, "leave it out")


app = ServerApp()


@app.main()  # type: ignore[untyped-decorator]
def main(grid: Grid, context: Context) -> None:
    """For `flwr run`: the run config's `config` is a file, `out` the run's folder, `resume` whether it goes on."""
    given = context.run_config
    config, settings = load(str(given["config"]))
    out = Path(str(given["out"])) if given.get("out") else None
    coordinate(config, settings, Network(grid, {}), out=out, resume=bool(given.get("resume", False)))
