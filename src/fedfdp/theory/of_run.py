"""The bound's constants of a finished run folder: its records and models are made again from its config.

Reads a run and changes nothing in it. Where the records are not the run's own, it refuses.
"""

from dataclasses import replace
from pathlib import Path

from fedfdp.core.errors import RunError
from fedfdp.core.records import Weights, digest
from fedfdp.runs import config as configs
from fedfdp.runs.build import federation_of, inner_of, model_of
from fedfdp.runs.folder import MODEL, RunFolder
from fedfdp.runs.released import read_weights
from fedfdp.theory.estimates import RECORDS, Estimates, estimate


def estimates_of(path: Path, *, records: int = RECORDS, clip: float | None = None) -> Estimates:
    """Estimates from the run in this folder, as if it had clipped to `clip` where that is given.

    `estimate` does the same for a run that no config can rebuild.
    """
    folder = RunFolder.find(path)
    rounds = int(folder.summary()["rounds"])
    stored = folder.config()
    if "data" not in stored:
        raise RunError(
            f"{path} was started from Python with records of its own, which no config names; "
            "call fedfdp.theory.estimates.estimate with them"
        )
    config = configs.from_dict(stored).resolved()
    federation = federation_of(config)
    model = model_of(config, federation)
    first = Weights.of({name: p for name, p in model.named_parameters() if p.requires_grad})
    identity = folder.identity()
    if identity["data"] != federation.fingerprint() or identity["weights"] != digest(first):
        raise RunError(f"{path} was made of other records or a model of another make; estimate on the same ones")
    final = read_weights(folder.path / MODEL)
    privacy = config.privacy
    if privacy is not None and clip is not None:
        privacy = replace(privacy, clip=clip)
    return estimate(
        model,
        inner_of(config, federation),
        first=first,
        final=Weights.of({name: final[name] for name in first}),
        algorithm=config.algorithm,
        privacy=privacy,
        rounds=rounds,
        records=records,
    )
