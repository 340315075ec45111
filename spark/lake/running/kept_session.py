"""Keeps a Spark session for several runs of one process, so that only the first run has to start it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from lake.running import script

MOST_BYTES = 2**31
"""If driver, JVM and workers use more than this many bytes of memory, the next run gets a new session."""


class KeptSession:
    """A Spark session, started by the first run that needs it. This context manager closes it."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._session: SparkSession | None = None

    def __enter__(self) -> KeptSession:
        return self

    def __exit__(self, *_: object) -> None:
        usable = self._session is None or self.is_usable()
        try:
            self._stack.close()
        except Exception:  # py4j raises various errors if the JVM has ended
            if usable:
                raise

    @property
    def is_worth_keeping(self) -> bool:
        """True if there is a session that has not grown too large."""
        return self._session is not None and _bytes_of_group(os.getpgrp()) <= MOST_BYTES

    def is_usable(self) -> bool:
        """Return True if the session's JVM still answers."""
        try:
            return self._session is not None and not self._session.sparkContext._jsc.sc().isStopped()
        except Exception:  # py4j raises many kinds of errors, and each means that the JVM is not usable
            return False

    @contextmanager
    def spark(self, arguments: argparse.Namespace, name: str) -> Iterator[SparkSession]:
        """Return the session, and start it if needed, as `script.spark` does; it stays open after the block."""
        if self._session is None:
            self._session = self._stack.enter_context(script.spark(arguments, name))
        yield self._session


def _bytes_of_group(group: int) -> int:
    """Return the bytes of memory that the processes of a group use; shared memory counts for each process."""
    pages = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "stat").read_text().rpartition(") ")[2].split()[2] == str(group):
                pages += int((folder / "statm").read_text().split()[1])
        except OSError:
            continue
    return pages * os.sysconf("SC_PAGE_SIZE")
