"""Memory that requests took is given back to the system, in processes that serve clients."""

from __future__ import annotations

import ctypes
import time
from functools import partial

from pipeline.process import supervised

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGE = 65_536
"""Pieces of at least these bytes have their own mapping, which ends with them."""
_TRIM_SECONDS = 10.0
"""Seconds between two returns of free pages between small pieces, each of which takes about a millisecond."""


def return_freed() -> None:
    """Set glibc so that freed memory leaves the process; call this before threads begin.

    By default, once a large piece was freed, glibc puts others between small pieces: then bodies of requests keep their
    memory for good. Many threads also have their own part of the memory. No other C library is changed.
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
