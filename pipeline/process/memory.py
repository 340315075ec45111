"""The memory of a process that serves clients: what requests took is given back to the system."""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGE = 65_536
"""Bytes from which on a piece has a mapping of its own, which ends with it."""


def return_freed() -> None:
    """Set glibc so that freed memory leaves the process; call this before threads begin. Others do so anyway.

    By default, once a large piece was freed, glibc puts others between small pieces: then bodies of requests keep their
    memory for good. And many threads have a part of the memory for themselves.
    """
    if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        for parameter, value in ((_M_MMAP_THRESHOLD, _LARGE), (_M_TRIM_THRESHOLD, 2 * _LARGE), (_M_ARENA_MAX, 1)):
            mallopt(parameter, value)
