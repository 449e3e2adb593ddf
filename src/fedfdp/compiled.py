"""Loops compiled by numba, kept on disk for the next process; other threads go on while one runs."""

from collections.abc import Callable
from functools import cache
from typing import Any

from numba import njit

# A product and a sum may be rounded once instead of twice. Nothing else of what is written is changed.
OPTIONS: dict[str, Any] = {"error_model": "numpy", "fastmath": {"contract"}}
inlined = njit(inline="always", **OPTIONS)  # a call left in a loop would keep it from being vectorised


@cache
def compiled(function: Callable[..., None], signature: str) -> Callable[..., None]:
    """The function for arguments of these types."""
    try:
        return njit(signature, nogil=True, cache=True, **OPTIONS)(function)  # type: ignore[no-any-return]
    except RuntimeError:  # no folder that may be written to
        return njit(signature, nogil=True, **OPTIONS)(function)  # type: ignore[no-any-return]
