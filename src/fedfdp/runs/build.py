"""From a config to a finished run in this process: reads the records, builds the model, trains."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from fedfdp import data
from fedfdp.core.errors import DataError, RunError, SettingError, nearest
from fedfdp.data import Federation
from fedfdp.data.columns import Range
from fedfdp.data.files.content import content_of
from fedfdp.data.files.read import Say
from fedfdp.data.from_files import federation_of_records, open_records, place_of
from fedfdp.data.named.catalog import named
from fedfdp.data.schema import Estimate
from fedfdp.engines import find_engine
from fedfdp.features import form_after, normalised
from fedfdp.features.mapped import mapped
from fedfdp.models.losses import loss_at
from fedfdp.privacy.noise.randomness import Seeded
from fedfdp.privacy.noise.secure import Secure
from fedfdp.runs import config as configs
from fedfdp.runs import layers
from fedfdp.runs.config import Config
from fedfdp.runs.folder import RunFolder
from fedfdp.runs.session import Result, Update
from fedfdp.runs.train import train
from fedfdp.training.facts import PublicFacts
from fedfdp.training.protocols import Members


def federation_of(config: Config, *, progress: Say | None = None) -> Federation:
    """The clients of a run, as its config says. `progress` is told how far the reading of large files is."""
    settings = config.data
    dealt: dict[str, Any] = {
        "how": settings.partition,
        "column": settings.column,
        "beta": settings.beta,
        "shards_per_client": settings.shards_per_client,
        "test_fraction": settings.test_fraction,
        "fraction": settings.fraction,
        "seed": config.seed if settings.seed is None else settings.seed,
    }
    if not named(settings.source):
        deal = partial(federation_of_records, clients=settings.clients, **dealt)
        randomness = Secure() if config.randomness == "secure" else Seeded(config.seed)
        path = place_of(settings.source, settings.folder)
        if settings.content is not None and (found := content_of(path)) != settings.content:
            fix = "put back what this run was started on, or start a new run without data.content"
            raise DataError(f"{path}: changed: data.content is {settings.content:.12}, now it is {found:.12}; {fix}")
        return open_records(settings, path, deal, randomness=randomness, progress=progress)
    if settings.content is not None:
        raise SettingError("data.content", settings.content, "only for files of your own", "leave it out")
    dataset = data.load(settings.source, folder=settings.folder, asked=settings)
    clients = None if settings.partition == "column" else settings.clients
    return Federation.partition(dataset, clients=clients, **dealt)


def pinned(runs: Sequence[Config]) -> list[Config]:
    """The same configs with `data.content` where they name your own files: a later change of those is noticed.

    Each file is read once.
    """
    known: dict[Path, str] = {}
    found = []
    for config in runs:
        if not named(config.data.source) and config.data.content is None:
            path = place_of(config.data.source, config.data.folder)
            if path not in known:
                known[path] = content_of(path)
            config = replace(config, data=replace(config.data, content=known[path]))
        found.append(config)
    return found


def model_of(config: Config, members: Members) -> nn.Module:
    """The model of a run, before training; it takes what comes out of the features, where there are some."""
    shape = _inner_shape(config, members)
    return config.model.build(input_shape=shape, outputs=members.outputs, seed=config.seed, task=members.task)


def _inner_shape(config: Config, members: Members) -> tuple[int, ...]:
    form = members.form if config.features is None else form_after(config.features.build(), members.form)
    return form[0].shape


def inner_of(config: Config, federation: Federation, *, progress: Say | None = None) -> Federation:
    """The federation that the model is trained on: with the features of each record, where there are some."""
    if config.features is None:
        return federation
    return federation.with_inputs(
        mapped(config.features.build(), federation.x, threads=config.threads, progress=progress)
    )


def models_of(config: Config, federation: Federation) -> dict[str, nn.Module]:
    """The models of clients that differ from `model_of`: narrower ones, and those for records of another shape."""
    widths, found = config.model.widths or {}, {}
    for name in widths:
        if name not in federation.names:
            known = nearest(name, federation.names)
            raise SettingError(f"model.widths.{name}", widths[name], f"no such client; {known}")
    for name in federation.names:
        part, width = federation.part(name), widths.get(name, 1.0)
        if width != 1 or (part.input_shape, part.outputs) != (federation.input_shape, federation.outputs):
            shape, outputs = _inner_shape(config, part), part.outputs
            found[name] = config.model.build(input_shape=shape, outputs=outputs, seed=config.seed, width=width)
    return found


def facts_of(config: Config, members: Members) -> PublicFacts:
    """What the choice of open settings may know of a run."""
    scaled = config.data.target is not None and not named(config.data.source)
    return PublicFacts.of(model_of(config, members), members, scaled=scaled, normalised=normalised(config.features))


def fitted(config: Config, members: Members) -> Config:
    """The config with nothing left open: what it leaves out is chosen for these clients, by public facts alone."""
    shape = _inner_shape(config, members)
    if config.features is not None:
        shape = (math.prod(shape),)  # a linear model suits features
    config = replace(config, model=config.model.fitted(shape, tokens=members.tokens))
    return config.resolved(facts_of(config, members))


def launch(
    config: Config,
    *,
    out: Path | None = None,
    resume: bool = False,
    federation: Federation | None = None,
    on_update: Callable[[Update], None] | None = None,
) -> Result:
    """Runs a config in this process; with `out` into that folder."""
    engine = config.ray if config.engine == "ray" and config.ray else find_engine(config.engine)
    if resume and out is not None:  # a private range is estimated once
        kept = RunFolder.find(out).config().get("data", {}).get("estimate", {})
        config = _with_ranges(config, kept.get("found", {}), kept.get("found_with", 0.0))
    federation = federation or federation_of(config)
    config = fitted(config, federation)
    config = _with_ranges(config, federation.found, next((event.sigmas[0] for event in federation.before), 0.0))
    return train(
        model_of(config, federation),
        federation,
        algorithm=config.algorithm,
        privacy=config.privacy,
        rounds=config.rounds,
        server=config.server,
        participation=config.participation,
        features=config.features,
        own=config.model.own or (),
        models=models_of(config, federation),
        loss=None if config.loss is None else loss_at(config.loss),
        output=config.model.output,
        metric=config.metric,
        seed=config.seed,
        randomness=config.randomness,
        eval_every=config.eval_every,
        engine=engine,
        fused=config.fused,
        device=config.device,
        threads=config.threads,
        out=out,
        resume=resume,
        config=config.to_dict(),
        on_update=on_update,
    )


def _with_ranges(config: Config, found: Mapping[str, Range], sigma: float) -> Config:
    """The config with the private ranges that its run found, as its folder keeps it."""
    if not found:
        return config
    ranges = {name: (low, high) for name, (low, high) in found.items()}
    estimate = replace(config.data.estimate or Estimate(), found=ranges, found_with=sigma)
    return replace(config, data=replace(config.data, estimate=estimate))


def stored_config(folder: RunFolder, overrides: list[str]) -> Config:
    """A folder's config. Overrides may change name, threads, device and eval_every: nothing that is computed."""
    stored = configs.from_dict(folder.config())
    config = configs.from_dict(layers.override(folder.config(), overrides))
    if config.fingerprint() != stored.fingerprint():
        raise RunError(f"{folder.path} belongs to another config: --set may not change what a resumed run computes")
    return config


def free_folder(parent: Path, name: str) -> Path:
    """parent/name, or with the first number that is free."""
    path, number = parent / name, 2
    while path.exists():
        path, number = parent / f"{name}-{number}", number + 1
    return path
