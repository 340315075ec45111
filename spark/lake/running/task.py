"""A task that says where it failed. Imports nothing that an executor may lack."""

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
    """Calls a function that arrives as bytes with arguments that do, one after the other.

    What cannot even be imported is named too.
    """

    def __init__(self, act: bytes, *, named: bool) -> None:
        """`named`: the text names host and interpreter."""
        self._act = act
        self._named = named

    def __call__(self, tasks: Sequence[bytes]) -> list[Any]:
        """The result of each."""
        try:
            act: Callable[[Any], Any] = pickle.loads(self._act)  # noqa: S301  from our driver
            return [act(pickle.loads(task)) for task in tasks]  # noqa: S301
        except Exception as error:
            said = " ".join(str(error).split())
            where = f"on {platform.node()}, with {sys.executable}: " if self._named else ""
            raise TaskFailedError(f"{where}{type(error).__name__}: {said}") from error
        finally:
            release_memory()
            freeze_imports()


def release_memory() -> None:
    """What is not used any more: a worker stays for tasks to come, while others need its memory."""
    if arrow := sys.modules.get("pyarrow"):
        arrow.default_memory_pool().release_unused()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # glibc has it
        trim(0)


@cache
def freeze_imports() -> None:
    """Let garbage collections skip what the first task has imported: PySpark runs one after every task, for 50 ms."""
    gc.collect()
    gc.freeze()
