"""Exchanges two folders of a file system in one step: at every moment, each name leads to one of the folders."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import uuid
from pathlib import Path

_PROCESS_FOLDER = -100
"""AT_FDCWD: paths are relative to the folder of this process."""
_EXCHANGE = 2
"""RENAME_EXCHANGE of renameat2(2)."""


def exchange(one: Path, other: Path) -> None:
    """Exchange two existing names. Raises OSError if the file system cannot."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    if call(_PROCESS_FOLDER, os.fsencode(one), _PROCESS_FOLDER, os.fsencode(other), _EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(one), None, str(other))


def refusal(folder: Path) -> str | None:
    """Exchange two new folders in `folder`, and return the reason if that fails; None if it succeeds.

    Raises OSError if the folders cannot be made.
    """
    probe = folder / f"exchange-{uuid.uuid4().hex}"
    one, other = probe / "one", probe / "other"
    (one / "inside").mkdir(parents=True)
    other.mkdir()
    try:
        exchange(one, other)
        is_exchanged = one.exists() and (other / "inside").exists()
        return None if is_exchanged else "the names were not exchanged"
    except OSError as error:
        return error.strerror or str(error)
    finally:
        shutil.rmtree(probe, ignore_errors=True)
