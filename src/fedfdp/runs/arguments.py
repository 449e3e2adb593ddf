"""Checks the types of what `train` is given, before anything else. It never judges a value of the right type."""

from collections.abc import Callable, Mapping
from numbers import Integral
from pathlib import Path
from typing import Any

from torch import nn

from fedfdp.algorithms import ALGORITHMS, Algorithm
from fedfdp.core.errors import SettingError, nearest
from fedfdp.data import Federation
from fedfdp.features import Features
from fedfdp.privacy.accounting.events import check_count
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.training.participation import Participation
from fedfdp.training.server_optimizer import ServerOptimizer

# (kinds, what is allowed, what to do); None is allowed for those in _OPEN
_KINDS: dict[str, tuple[Any, str, str]] = {
    "model": (nn.Module, "a torch.nn.Module", "as torch.nn.Linear(features, classes)"),
    "federation": (Federation, "a fedfdp.Federation", "fedfdp.Federation.from_clients({'name': (x, y), …}) makes one"),
    "algorithm": (Algorithm, "a method", "as fedfdp.FedFDP()"),
    "privacy": (DPSGD, "a fedfdp.DPSGD", "as fedfdp.DPSGD(epsilon=3.0), or leave it out for none"),
    "server": (ServerOptimizer, "a fedfdp.ServerOptimizer", "as fedfdp.ServerOptimizer(optimizer='adam')"),
    "participation": (Participation, "a fedfdp.Participation", "as fedfdp.Participation(fraction=0.5)"),
    "features": (
        (str, Features, nn.Module),
        "a name, a fedfdp.Features or a module",
        "as 'scattering', or leave it out",
    ),
    "loss": (Callable, "a function of (outputs, targets)", "fedfdp.models.losses.loss_at imports one by its name"),
    "metric": ((str, Callable), "a name or a function of (outputs, targets)", "loss and accuracy are the names"),
    "seed": (int, "a whole number", "0 is usual"),
    "eval_every": (Integral, "a whole number of rounds", "leave it out for about 15 evaluations"),
    "threads": (Integral, "a whole number", "leave it out for one per core"),
    "device": (str, "the name of a device", "cpu, cuda or auto"),
    "engine": ((str, Callable), "an engine's name or a class", "use 'local', or a class such as LocalEngine"),
    "out": ((str, Path), "the path of a folder", "leave it out to write nothing"),
    "config": (Mapping, "the settings that the folder keeps, by section", "leave it out"),
    "on_update": (Callable, "a function of a fedfdp.Update", "leave it out"),
}
_OPEN = {"algorithm", "privacy", "server", "participation", "features", "loss", "eval_every", "engine"}
_OPEN |= {"out", "config", "on_update", "threads"}
_RANDOMNESS = ("seeded", "secure")


def check_arguments(given: Mapping[str, Any]) -> None:
    """Raises for the first argument of a wrong type: its name, what it is, what is allowed, what to do."""
    for name, (kinds, allowed, fix) in _KINDS.items():
        value = given[name]
        if isinstance(value, kinds) or (value is None and name in _OPEN):
            continue
        if isinstance(value, type) and isinstance(kinds, type) and issubclass(value, kinds):
            raise SettingError(name, value, "a class", f"make one of it: {value.__name__}(…)")
        if name == "algorithm" and isinstance(value, str) and value in ALGORITHMS:
            fix = f"as fedfdp.{ALGORITHMS[value].__name__}()"
        raise SettingError(name, _shown(value), f"not {allowed}", fix)
    _check_numbers(given)
    if given["resume"] and given["out"] is None:
        raise SettingError("resume", True, "which run?", "give its folder as out")
    if given["rounds"] is not None:
        check_count("rounds", given["rounds"])
    if given["randomness"] not in _RANDOMNESS:
        raise SettingError("randomness", given["randomness"], nearest(str(given["randomness"]), _RANDOMNESS))


def _check_numbers(given: Mapping[str, Any]) -> None:
    if not 0 <= given["seed"] < 2**63:
        raise SettingError("seed", given["seed"], "from 0 to 2^63 − 1", "0 is usual")
    if given["eval_every"] is not None and given["eval_every"] < 1:
        raise SettingError("eval_every", given["eval_every"], "1 or more", "leave it out for about 15 evaluations")
    if given["threads"] is not None and not 1 <= given["threads"] <= 1024:
        raise SettingError("threads", given["threads"], "from 1 to 1024", "leave it out for one per core")


def _shown(value: object) -> object:
    """A word or a number as it is, anything else by its type: one line, whatever it holds."""
    return value if isinstance(value, str | int | float | None) else type(value)
