"""Gives the memory that requests used back to the system, in processes that serve clients."""

from __future__ import annotations

import ctypes
import time
from functools import partial

from pipeline.process import supervised

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGE = 65_536
"""A piece of memory of at least this many bytes gets its own mapping, which returns to the system when it is freed."""
_TRIM_SECONDS = 10.0
"""Seconds between two calls that return the free pages between small pieces; a call takes about a millisecond."""


def return_freed() -> None:
    """Set glibc so that freed memory leaves the process; call this before threads begin.

    By default, glibc allocates large pieces among small ones after the first large piece was freed. Then the memory of
    request bodies never returns to the system. By default, glibc also keeps a separate heap for many threads. With
    another C library than glibc, this function does nothing.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt") and hasattr(library, "malloc_trim"):
        for parameter, value in ((_M_MMAP_THRESHOLD, _LARGE), (_M_TRIM_THRESHOLD, 2 * _LARGE), (_M_ARENA_MAX, 1)):
            library.mallopt(parameter, value)
        supervised.start_thread("memory", partial(_trim, library))


def _trim(library: ctypes.CDLL) -> None:
    while True:
        time.sleep(_TRIM_SECONDS)
        library.malloc_trim(0)
