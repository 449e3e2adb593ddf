"""From a Config to a finished run: loads the records, builds the model, trains."""

import math
from collections.abc import Callable
from pathlib import Path

from torch import nn

from fedfdp import config as configs
from fedfdp import data, models
from fedfdp.config import Config
from fedfdp.data import Federation
from fedfdp.errors import RunError, SettingError
from fedfdp.runs.folder import RunFolder
from fedfdp.session import Result, Update
from fedfdp.training import train


def federation_of(config: Config) -> Federation:
    """The clients of a run, as its config says."""
    settings = config.data
    dataset = data.load(settings.source, folder=settings.folder)
    return Federation.partition(
        dataset,
        clients=None if settings.partition == "column" else settings.clients,
        how=settings.partition,
        column=settings.column,
        beta=settings.beta,
        shards_per_client=settings.shards_per_client,
        test_fraction=settings.test_fraction,
        fraction=settings.fraction,
        seed=config.seed if settings.seed is None else settings.seed,
    )


def model_of(config: Config, federation: Federation) -> nn.Module:
    """The model of a run, before training."""
    return models.build(
        config.model.name,
        input_shape=federation.input_shape,
        outputs=federation.classes or math.prod(federation.y.shape[1:]) or 1,
        seed=config.seed,
        arguments=config.model.arguments,
        trainable=config.model.trainable,
    )


def launch(
    config: Config,
    *,
    out: Path | None = None,
    resume: bool = False,
    federation: Federation | None = None,
    on_update: Callable[[Update], None] | None = None,
) -> Result:
    """Runs a config in this process; with `out` into that folder."""
    if config.engine != "local":
        fix = "start it with fedfdp server, or try it on one machine with fedfdp deploy local"
        raise SettingError("engine", config.engine, "not run by this command", fix)
    config = config.resolved()
    federation = federation or federation_of(config)
    return train(
        model_of(config, federation),
        federation,
        algorithm=config.algorithm,
        privacy=config.privacy,
        rounds=config.rounds,
        server=config.server,
        participation=config.participation,
        seed=config.seed,
        randomness=config.randomness,
        eval_every=config.eval_every,
        fused=config.fused,
        device=config.device,
        threads=config.threads,
        out=out,
        resume=resume,
        config=config.to_dict(),
        on_update=on_update,
    )


def stored_config(folder: RunFolder, overrides: list[str]) -> Config:
    """What a folder's run was started with; overrides may change how it is looked at, not what it computes."""
    stored = configs.from_dict(folder.config())
    config = configs.from_dict(configs.override(folder.config(), overrides))
    if config.fingerprint() != stored.fingerprint():
        raise RunError(f"{folder.path} belongs to another config: --set may not change what a resumed run computes")
    return config


def free_folder(parent: Path, name: str) -> Path:
    """parent/name, or with the first number that is free."""
    path, number = parent / name, 2
    while path.exists():
        path, number = parent / f"{name}-{number}", number + 1
    return path
