"""Runs a task so that its error names the place. Imports no module that an executor may lack."""

from __future__ import annotations

import ctypes
import gc
import pickle
import platform
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

TASK = "TaskFailedError"


class TaskFailedError(Exception):
    """A task failed; the text says on which host, under which interpreter, and why."""


class GuardedTask:
    """Calls a pickled function with each of several pickled arguments.

    If a module cannot be imported, the error names it, too.
    """

    def __init__(self, act: bytes, *, named: bool) -> None:
        """Wrap a pickled function. `named`: an error names host and interpreter."""
        self._act = act
        self._named = named

    def __call__(self, tasks: Sequence[bytes]) -> list[Any]:
        """Return the results of the function for these arguments."""
        try:
            act: Callable[[Any], Any] = pickle.loads(self._act)  # noqa: S301  from our driver
            return [act(pickle.loads(task)) for task in tasks]  # noqa: S301
        except Exception as error:
            text = " ".join(str(error).split())
            where = f"on {platform.node()}, with {sys.executable}: " if self._named else ""
            raise TaskFailedError(f"{where}{type(error).__name__}: {text}") from error
        finally:
            release_memory()
            freeze_imports()


def release_memory() -> None:
    """Return unused memory to the system: a worker stays for further tasks, while other processes need the memory."""
    if arrow := sys.modules.get("pyarrow"):
        arrow.default_memory_pool().release_unused()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # glibc has it
        trim(0)


@cache
def freeze_imports() -> None:
    """Exclude the first task's imports from garbage collections: PySpark collects after every task, for 50 ms."""
    gc.collect()
    gc.freeze()
