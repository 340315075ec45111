"""Copies several tables at once: one can be read while another is written, and small tables do not wait for large."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from queue import SimpleQueue
from typing import Any

from pipeline.followers.copying.table_copies import CopyInterruptedError, TableCopies
from pipeline.followers.registry import NamedTable, TableNote

SESSIONS = 4
"""The most copies at once: each has a session at the source and one at the follower."""


def make(
    copier: Callable[[], AbstractContextManager[TableCopies]],
    tables: Sequence[NamedTable],
    rest: Callable[[float], Any],
) -> dict[NamedTable, TableNote]:
    """Copy these tables in several threads, as `TableCopies.make` does. Its errors are raised once all have ended."""
    queue = SimpleQueue[NamedTable]()
    for table in tables:
        queue.put(table)

    def work() -> dict[NamedTable, TableNote]:
        with copier() as made:
            return made.make(queue, rest)

    count = min(SESSIONS, len(tables)) or 1
    with ThreadPoolExecutor(count, "copies") as pool:
        done = [pool.submit(work) for _ in range(count)]
    errors = [error for each in done if (error := each.exception()) is not None]
    for error in sorted(
        errors, key=lambda error: isinstance(error, CopyInterruptedError)
    ):  # the original error comes first
        raise error
    return {table: note for each in done for table, note in each.result().items()}
