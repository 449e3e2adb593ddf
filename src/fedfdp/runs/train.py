"""`train`: a model, a federation and a method in; a trained model and its measures out."""

import hashlib
import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from torch import nn

from fedfdp.algorithms import Algorithm, FedFDP, algorithm_settings
from fedfdp.algorithms.parts import Parts, in_parts
from fedfdp.core.errors import RunError, SettingError, nearest, require
from fedfdp.core.identity import examine
from fedfdp.core.records import digest
from fedfdp.core.settings import plain
from fedfdp.data import Federation
from fedfdp.data.domains import Domains
from fedfdp.engines import EngineFactory, find_engine
from fedfdp.engines.local import LocalEngine
from fedfdp.engines.ray.settings import Ray
from fedfdp.fairness.metrics.outputs import OfOutputs
from fedfdp.fairness.performance import Performance
from fedfdp.features import Features, about, as_map, normalised, whole
from fedfdp.features.mapped import digest_of, mapped
from fedfdp.features.prefix import computed_once
from fedfdp.models import check_output
from fedfdp.models.adapters import check_reached
from fedfdp.models.copies import copied
from fedfdp.models.learner import Learner
from fedfdp.models.losses import LossFunction
from fedfdp.models.pretrained import check_words
from fedfdp.models.trial import check_task
from fedfdp.native.threads import allowed_threads
from fedfdp.privacy.clipping.state import spoilt_by_plain_run
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.privacy.ledger import LedgerBook
from fedfdp.privacy.noise.randomness import FRESH, STREAMS, Seeded
from fedfdp.privacy.noise.secure import Secure
from fedfdp.runs.arguments import check_arguments
from fedfdp.runs.assemble import Started, carry_out
from fedfdp.runs.folder import LEDGER
from fedfdp.runs.learners import available, other_learners, threads_for
from fedfdp.runs.session import Result, Update
from fedfdp.training.defaults import settle
from fedfdp.training.evaluation import LocalEvaluator
from fedfdp.training.facts import PublicFacts
from fedfdp.training.participation import Participation
from fedfdp.training.protocols import Engine
from fedfdp.training.robust import check_same_width
from fedfdp.training.rounds import Plan
from fedfdp.training.server_optimizer import ServerOptimizer


def train(
    model: nn.Module,
    federation: Federation,
    *,
    algorithm: Algorithm | None = None,
    privacy: DPSGD | None = None,
    rounds: int | None = None,
    server: ServerOptimizer | None = None,
    participation: Participation | None = None,
    features: str | Features | nn.Module | None = None,
    own: Sequence[str] = (),
    models: Mapping[str, nn.Module] | None = None,
    loss: LossFunction | None = None,
    output: str | None = None,
    metric: str | OfOutputs = "loss",
    seed: int = 0,
    randomness: Literal["seeded", "secure"] = "seeded",
    eval_every: int | None = None,
    engine: str | EngineFactory | None = None,
    fused: bool = True,
    device: str = "cpu",
    threads: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    config: Mapping[str, object] | None = None,
    on_update: Callable[[Update], None] | None = None,
) -> Result:
    """Trains `model` across the clients of `federation`; the model that is passed in stays as it is.

    What is left out is chosen from public facts (docs/planning.md): `privacy=DPSGD(epsilon=3.0)` is enough. Of ε, σ and
    `rounds` the one that is left out is solved for. A run that diverges raises `DivergedError`, with its result.

    Args:
        model: any `torch.nn.Module` that takes such records, several inputs as its arguments; only parameters that
            require a gradient are trained.
        federation: the clients and their records.
        algorithm: the method; None: `FedFDP()`.
        privacy: the private step and its budget; None: no privacy.
        rounds: how many; None: as many as ε and σ allow, or chosen if only ε is given.
        server: an optimiser or averaged weights on top of the method; None: chosen if `lr` is left out.
        participation: who takes part in a round; None: everyone.
        features: a fixed map of each record by itself that comes before `model`: a name, a `fedfdp.Features`, or a
            module, which is frozen; None: none.
        own: parameters or layers that never leave a client, such as ["head.*"].
        models: by client name, models that differ: other own parts (a head for other classes), or narrower ones whose
            parameters are leading slices of those of `model`. Everyone else has `model`.
        loss: called with outputs and targets, it gives one loss per record; None: that of the federation's task.
        output: the entry that counts where the model gives a dict or an object; None: "logits".
        metric: Ψ is its variance over clients: "loss", "accuracy", or a function of outputs and targets.
        seed: the same seed gives the same bits.
        randomness: "secure" draws batches and noise from the operating system: nothing is repeated then, and a round
            that is resumed is paid for again.
        eval_every: rounds between two evaluations; None: about 15 evaluations in all.
        engine: how clients are reached: None or "local", all in this process; "ray" or a `Ray`, over the workers of a
            cluster; "package.module:Class"; or a class or function that is called as `LocalEngine` is, and gives an
            `Engine`.
        fused: whether many clients are computed in one pass; False is slower, and the same but for rounding.
        device: "cpu", "cuda" or "auto".
        threads: None: one per core, or one in all where there is little to compute.
        out: the folder that keeps the run; None: nothing is written.
        resume: continues the run in `out`, to the same bits.
        config: what that folder keeps as the run's settings; None: those given here.
        on_update: called after every round.

    Returns:
        The trained model, its measures and their history.

    >>> import torch, fedfdp
    >>> x, y = torch.randn(400, 5, generator=torch.Generator().manual_seed(0)), torch.arange(400) % 2
    >>> clients = fedfdp.Federation.from_clients({"north": (x[:250], y[:250]), "south": (x[250:], y[250:])})
    >>> private = fedfdp.DPSGD(epsilon=2.0, sigma=2.0, q=0.1, clip=1.0)
    >>> method = fedfdp.FedFDP(lr=0.5)
    >>> result = fedfdp.train(torch.nn.Linear(5, 2), clients, algorithm=method, privacy=private, rounds=5)
    >>> result.summary["rounds"], result.summary["epsilon"] <= 2.0
    (5, True)
    """
    check_arguments(locals())
    algorithm, server = algorithm or FedFDP(), server or ServerOptimizer()
    participation = participation or Participation()
    factory = find_engine(engine or "local") if engine is None or isinstance(engine, str) else engine
    algorithm.check_privacy(privacy)
    settled = settle(
        PublicFacts.of(model, federation, normalised=normalised(features)),
        algorithm,
        privacy,
        server,
        rounds,
        share=participation.fraction,
        before=federation.before,
    )
    algorithm, privacy, server, rounds = settled.algorithm, settled.privacy, settled.server, settled.rounds
    eval_every = eval_every or max(1, math.ceil(rounds / 15))
    untouched, model = model, copied(model)
    task = federation.task
    front = None if features is None else as_map(features)
    apart = front is not None and isinstance(federation, Domains)
    require(not apart, "features", features, "not for clients whose records differ in shape", "map them beforehand")
    inner = federation  # what the model is trained on
    if front is not None:
        inner = federation.with_inputs(mapped(front, federation.x, threads=allowed_threads(threads)))
    shape, entry = check_output(model, inner.form, outputs=inner.outputs, task=task, output=output)
    check_reached(model, inner.form, entry)
    check_words(model, inner.x)
    if front is None and not (own or models or isinstance(federation, Domains)):
        inner = computed_once(model, inner, entry)
    device = available(device)
    check_task(task, federation.y, shape, loss, device=device)
    performance = Performance.of(metric)
    performance.check(federation.classes, (*task.of_answers, *task.of_loss))
    learner_of = partial(Learner, device=device)
    if own or models or isinstance(federation, Domains):
        algorithm = in_parts(algorithm, own)
        learner_of = partial(learner_of, in_parts=True)
        others = other_learners(
            models or {}, inner, algorithm, model, learner_of, loss=loss, output=output, device=device
        )
        check_same_width(server.robust, [algorithm.shared(other.initial()) for other in others.values()], model)
        learner_of = partial(learner_of, others=others)
    learner = learner_of(model, loss or task.loss, task=task, output=entry)
    ours = factory is LocalEngine or isinstance(factory, Ray)  # they compute the same
    foreign = None if ours else examine(factory, "engine")
    settings = {
        "algorithm": algorithm_settings(algorithm),
        "privacy": plain(privacy) if privacy else {},
        "server": plain(server),
        "participation": plain(participation),
        "rounds": rounds,
        "seed": seed,
        "fused": fused,
        "randomness": randomness,
        **({} if foreign is None else {"engine": _name_of(factory)}),
        **({"own": list(own)} if own else {}),
        **_settings_of(features),
    }
    identity = {
        "streams": STREAMS if randomness == "seeded" else FRESH,
        "settings": hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest(),
        "data": federation.fingerprint(),
        "weights": digest(learner.initial()),
        "method": examine(algorithm.method if isinstance(algorithm, Parts) else type(algorithm)).digest,
        **learner.identity,
        **({} if foreign is None else {"engine": foreign.digest}),
        **({} if front is None else {"features": digest_of(front)}),
        **({"models": digest([[n, o.identity, o.first] for n, o in learner.others.items()])} if learner.others else {}),
    }
    unknown = learner.unknown or (foreign.unknown if foreign is not None else "")
    if unknown and (resume or randomness == "seeded"):
        _cannot_repeat(unknown, resume, out)
    _check_budgets(privacy, federation)
    repeatable = randomness == "seeded"
    plan = Plan(algorithm, privacy, server, participation, rounds, eval_every, seed, repeatable)

    @contextmanager
    def start(folder: Path | None) -> Iterator[Started]:
        with _ledgers(plan, federation, identity, folder) as book:
            source = Seeded(seed) if repeatable else Secure()
            made = factory(inner, learner, algorithm, privacy=privacy, randomness=source, book=book, fused=fused)
            derive = "derive it from fedfdp.training.protocols.Engine"
            require(isinstance(made, Engine), "engine", type(made), "what it makes is no engine", derive)
            with closing(made):
                yield Started(made, LocalEvaluator(learner, inner, performance), book)

    ready = factory.ready(len(federation.names)) if isinstance(factory, Ray) else nullcontext()
    with ready, spoilt_by_plain_run(learner.model, learner.loss_fn) if privacy is None else nullcontext():
        result = carry_out(
            plan,
            federation,
            learner,
            start,
            identity=identity,
            config=config or settings,
            out=None if out is None else Path(out),
            resume=resume,
            threads=allowed_threads(threads) or threads_for(learner, federation, algorithm, privacy),
            on_update=on_update,
            about=about(features),
        )
    return replace(result, model=whole(front, _handed_out(untouched, result.model)))


@contextmanager
def _ledgers(
    plan: Plan, federation: Federation, identity: Mapping[str, str], folder: Path | None
) -> Iterator[LedgerBook | None]:
    """Every client's ledger, charged with what was released before training; None without privacy."""
    privacy = plan.privacy
    if privacy is None:
        yield None
        return
    with LedgerBook.open(
        folder / LEDGER if folder else None,
        data=identity["data"],
        config=identity["settings"],
        delta=privacy.delta,
        accountant=privacy.ledger_accountant(adaptive=plan.algorithm.adaptive),
        expects=plan.algorithm.events(None, privacy),
        budgets={name: privacy.budget(name) for name in federation.names},
        sync=False,
    ) as book:
        for name in federation.names if federation.before else ():  # free when a resumed run comes here again
            book.ledger(name).charge_before("ranges", federation.before)
        yield book


def _handed_out(untouched: nn.Module, trained: nn.Module) -> nn.Module:
    """A fresh copy of the given module with the released weights: code of the trained one may have stored records."""
    fresh = copied(untouched)
    try:
        fresh.load_state_dict(trained.state_dict())
    except RuntimeError:  # it has layers that it made at its first pass
        return trained
    return fresh.to(next(trained.parameters()).device).eval()


def _settings_of(features: str | Features | nn.Module | None) -> dict[str, dict[str, object]]:
    """The [features] section of a run that was started from Python; none for a module, which has no settings."""
    if features is None or isinstance(features, nn.Module):
        return {}
    return {"features": plain(Features(features) if isinstance(features, str) else features)}


def _name_of(factory: EngineFactory) -> str:
    """Where an engine's factory is from: package.module:name."""
    named = factory if hasattr(factory, "__qualname__") else type(factory)
    return f"{named.__module__}:{named.__qualname__}"


def _check_budgets(privacy: DPSGD | None, federation: Federation) -> None:
    names = federation.names
    for name, budget in (privacy.budgets if privacy else {}).items():
        if name not in names:
            known = nearest(name, names) if len(names) <= 50 else f"there are {len(names)} others"
            raise SettingError(f"privacy.budgets.{name}", budget, f"no such client; {known}")


def _cannot_repeat(unknown: str, resume: bool, out: str | Path | None) -> None:
    """Raises or warns: a model, loss or engine that holds what cannot be read cannot be compared with a later one."""
    fix = "keep functions, numbers and tensors in it"
    if resume:
        raise RunError(f"{out} cannot be resumed: {unknown} cannot be compared; {fix}, or start a new run")
    warnings.warn(f"{unknown} cannot be identified: this run cannot be resumed or repeated; {fix}", stacklevel=3)
