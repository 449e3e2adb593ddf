"""Imports what a setting names as `package.module:name`: the user's methods, models, losses, metrics and loaders."""

import importlib
from typing import Any

from fedfdp.core.errors import SettingError, require


def imported(path: str, setting: str, what: str = "function", *, called: bool = True) -> Any:
    """What is at `package.module:name`; a SettingError names the setting if there is none.

    `called`: it must be a class or a function; otherwise whoever asks sees whether it is what it should be.
    """
    form = f"give package.module:{what}"
    require(":" in path, setting, path, f"not a {what.lower()}", form)
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise SettingError(setting, path, f"cannot be imported: {error}", "check PYTHONPATH") from None
    require(callable(found) or not called, setting, path, f"not a {what.lower()}", form)
    return found
