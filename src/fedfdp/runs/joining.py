"""Does joining pay? For every holder, the federation's model against one that it trains by itself at the same ε.

Fairness that leaves a holder worse off than alone is no fairness: so those are counted and named.
"""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from fedfdp.algorithms import LocalOnly
from fedfdp.core.errors import RunError
from fedfdp.runs import config as configs
from fedfdp.runs import layers
from fedfdp.runs.build import launch, stored_config
from fedfdp.runs.config import Config
from fedfdp.runs.folder import JOINING, RunFolder
from fedfdp.runs.session import Update
from fedfdp.training.participation import Participation

ALONE = "alone"  # the folder of the holders' own training, in the run's folder
CLEAR = 2.0  # standard errors: a smaller difference may be chance


@dataclass(frozen=True)
class Holder:
    """One holder: how the federation's model serves it, and how its own would."""

    name: str
    joined: float | None  # accuracy, or in regression the loss, of the federation's model on its test records
    alone: float | None  # the same of the model that it trained by itself
    records: int | None  # its test records
    worse_off: bool  # whether the federation's is worse
    clear: bool  # whether the difference is more than chance would make of so few test records

    @property
    def advice(self) -> str:
        """What to do, in plain words."""
        if self.joined is None or self.alone is None:
            return "not known: it has no test records"
        if not self.clear:
            return "no clear difference: too few test records to tell"
        return "better alone" if self.worse_off else "join"


@dataclass(frozen=True)
class Joining:
    """All holders, and what is compared."""

    measure: str  # accuracy or loss
    epsilon: float | None  # of both, each paid for by itself; None without privacy
    holders: tuple[Holder, ...]

    @property
    def worse_off(self) -> list[str]:
        """The holders that the federation serves worse than they would serve themselves."""
        return [holder.name for holder in self.holders if holder.worse_off]

    @property
    def recommendation(self) -> str:
        """One sentence on who should take part."""
        clearly = [holder.name for holder in self.holders if holder.worse_off and holder.clear]
        gain = [holder.name for holder in self.holders if not holder.worse_off and holder.clear]
        if clearly:
            who, some = ", ".join(clearly), f"{len(gain)} of {len(self.holders)} holders clearly gain by joining"
            return f"{some}; {who} should stay out, or join with a model of their own (mrmtl)"
        if not gain:
            return "no holder clearly gains or loses by joining: the test records are too few, or the models are alike"
        return f"joining pays: {len(gain)} of {len(self.holders)} holders clearly gain, and none clearly loses"

    def to_dict(self) -> dict[str, object]:
        """For JSON."""
        each = [{**asdict(holder), "advice": holder.advice} for holder in self.holders]
        facts = {"measure": self.measure, "epsilon": self.epsilon, "worse_off": self.worse_off}
        return {**facts, "recommendation": self.recommendation, "holders": each}


def compared(joined: RunFolder, alone: RunFolder) -> Joining:
    """Two finished runs over the same holders: one that they joined, and one in which each trained by itself."""
    names = (joined.clients() or {}).get("names")
    if not names or (alone.clients() or {}).get("names") != names:
        raise RunError(f"{joined.path} and {alone.path} are not runs over the same holders")
    ends = [run.metrics()[-1]["clients"] if run.summary() else {} for run in (joined, alone)]
    right = all(value is not None for value in ends[0]["accuracy"])
    measure = "accuracy" if right else "loss"
    counts = (joined.clients() or {}).get("test") or [None] * len(names)
    rows = zip(names, ends[0][measure], ends[1][measure], counts, strict=True)
    found = tuple(_holder(*row, higher=measure == "accuracy") for row in rows)
    return Joining(measure, joined.summary().get("epsilon_budget"), found)


def _holder(name: str, joined: float | None, alone: float | None, records: int | None, *, higher: bool) -> Holder:
    if joined is None or alone is None:
        return Holder(name, joined, alone, records, worse_off=False, clear=False)
    gain = joined - alone if higher else alone - joined
    clear = gain != 0
    if higher and records:  # of two models on the same records; their errors would be fewer if they went together
        error = math.sqrt((joined * (1 - joined) + alone * (1 - alone)) / records)
        clear = abs(gain) > CLEAR * error
    return Holder(name, joined, alone, records, worse_off=gain < 0, clear=clear)


def alone_config(config: Config, overrides: list[str]) -> Config:
    """The same run with every holder by itself: the same records, model, rounds and ε, and the least noise for them."""
    method = config.algorithm
    kept = ("lr", "lr_decay", "local_steps", "local_epochs", "batch_size")
    local = LocalOnly(**{name: getattr(method, name) for name in kept})
    privacy = None if config.privacy is None else replace(config.privacy, sigma=None)
    model = replace(config.model, own=None, widths=None)
    made = replace(config, algorithm=local, privacy=privacy, model=model, participation=Participation())
    return configs.from_dict(layers.override(made.to_dict(), overrides)).resolved()


def joining(
    run: str | Path, overrides: list[str] | None = None, *, on_update: Callable[[Update], None] | None = None
) -> Joining:
    """Trains every holder of a finished run by itself, in the run's folder, and compares.

    What was trained before is not trained again. The holders' own training is a second release of their records: where
    they are real, its ε adds to that of the run.

    Args:
        run: the folder of a finished run.
        overrides: `section.setting=value`, for the holders' own training: its step size may want to be another.
        on_update: called after every round of it.

    Returns:
        The comparison, which the folder keeps as joining.json.
    """
    folder = RunFolder.find(Path(run))
    folder.summary()  # it must be finished
    if "data" not in folder.config():
        raise RunError(f"{run} was started from Python: train LocalOnly() on the same federation, and use `compared`")
    place = folder.path / ALONE
    if not (place.exists() and RunFolder.find(place).finished):
        resume = place.exists()
        config = stored_config(RunFolder.find(place), []) if resume else None
        config = config or alone_config(configs.from_dict(folder.config()).resolved(), overrides or [])
        launch(config, out=place, resume=resume, on_update=on_update)
    found = compared(folder, RunFolder.find(place))
    folder.write(JOINING, json.dumps(found.to_dict(), indent=2).encode())
    return found
