"""What a user can set right. Every such error is one line: the setting, its value, what is allowed, what to do."""

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
    """Records that cannot be trained on, or cannot be had."""


class BudgetError(FedFDPError):
    """A privacy budget that does not allow what was asked."""


class RunError(FedFDPError):
    """A run folder that is damaged, in use, or not the one that was meant."""


def require(ok: bool, setting: str, value: object, allowed: str, fix: str = "") -> None:
    """A SettingError unless `ok`."""
    if not ok:
        raise SettingError(setting, value, allowed, fix)


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the likeliest one meant, and all that exist."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    guess = f"did you mean {close[0]!r}? " if close else ""
    return f"{guess}known: {', '.join(names)}"
