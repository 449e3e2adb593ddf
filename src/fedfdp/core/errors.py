"""Errors that a user can fix. Each is one line: the setting, its value, what is allowed, what to do."""

import difflib
from collections.abc import Iterable


class FedFDPError(Exception):
    """Something the user can fix; the command line prints it as one line and exits with code 2."""


class SettingError(FedFDPError):
    """A setting with a value that is not allowed."""

    def __init__(self, setting: str, value: object, allowed: str, fix: str = "") -> None:
        self.setting, self.value = setting, value
        super().__init__(f"{setting} = {value!r}: {allowed}" + (f"; {fix}" if fix else ""))


class DataError(FedFDPError):
    """Records that cannot be trained on, or that could not be read."""


class BudgetError(FedFDPError):
    """A privacy budget that does not allow what was asked."""


class RunError(FedFDPError):
    """A run folder that is damaged, in use, or of another run."""


class DamagedError(RunError):
    """A ledger that was cut or edited."""


class DivergedError(FedFDPError):
    """A run whose model left all bounds. It stopped; its folder and `result` are kept. Exit code 3."""

    def __init__(self, reason: str, result: object) -> None:
        self.result = result  # a `fedfdp.Result`
        super().__init__(reason)


def require(ok: bool, setting: str, value: object, allowed: str, fix: str = "") -> None:
    """Raises a SettingError unless `ok`."""
    if not ok:
        raise SettingError(setting, value, allowed, fix)


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the known name nearest to it, and all known names."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    guess = f"did you mean {close[0]!r}? " if close else ""
    return f"{guess}known: {', '.join(names)}"
