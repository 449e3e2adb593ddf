"""Keeps memory between training steps instead of asking the system for it anew, page by page, at every step.

A setting of glibc's allocator for this process, made once; elsewhere it does nothing.
"""

import ctypes
import functools
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
KEEP = 1 << 30


@functools.cache
def tune_allocator() -> bool:
    """Hold on to freed blocks up to a gigabyte; True if the allocator took the setting. Cheap to call again."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, KEEP)) and bool(mallopt(M_TRIM_THRESHOLD, KEEP))
