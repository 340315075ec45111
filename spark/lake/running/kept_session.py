"""A Spark session that several runs of one process share, so that only the first of them has to start it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from lake.running import script

MOST_BYTES = 2**31
"""Memory of the driver, its JVM and its workers above which a session is not kept: it begins anew with the next run."""


class KeptSession:
    """Started when a run needs it first; to be closed."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._session: SparkSession | None = None

    def __enter__(self) -> KeptSession:
        return self

    def __exit__(self, *_: object) -> None:
        usable = self._session is None or self.is_usable()
        try:
            self._stack.close()
        except Exception:  # what py4j says of a JVM that has ended
            if usable:
                raise

    @property
    def is_worth_keeping(self) -> bool:
        """Whether there is one, and it has not grown too large."""
        return self._session is not None and _bytes_of_group(os.getpgrp()) <= MOST_BYTES

    def is_usable(self) -> bool:
        """Whether its JVM still answers."""
        try:
            return self._session is not None and not self._session.sparkContext._jsc.sc().isStopped()
        except Exception:  # py4j has many, and each means the same
            return False

    @contextmanager
    def spark(self, arguments: argparse.Namespace, name: str) -> Iterator[SparkSession]:
        """The session; as `script.spark`, but that it stays."""
        if self._session is None:
            self._session = self._stack.enter_context(script.spark(arguments, name))
        yield self._session


def _bytes_of_group(group: int) -> int:
    """Memory that the processes of a group use; what they share counts for each."""
    pages = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "stat").read_text().rpartition(") ")[2].split()[2] == str(group):
                pages += int((folder / "statm").read_text().split()[1])
        except OSError:
            continue
    return pages * os.sysconf("SC_PAGE_SIZE")
