"""Keeps freed memory between training steps instead of asking the system for it page by page at every step.

It sets two options of glibc's allocator for this process, once. Without glibc it does nothing.
"""

import ctypes
import functools
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
KEEP = 1 << 30


@functools.cache
def tune_allocator() -> bool:
    """Keeps freed blocks of up to a gigabyte; True if the allocator accepted the options. Cheap to call again."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, KEEP)) and bool(mallopt(M_TRIM_THRESHOLD, KEEP))


def give_back() -> None:
    """Gives freed memory back to the system; nothing where the C library cannot."""
    if sys.platform.startswith("linux") and hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).malloc_trim(0)
