"""Keeps an archive of classes from which later JVMs start in half the time (class data sharing of the JDK)."""

from __future__ import annotations

import os
import subprocess
from contextlib import suppress
from pathlib import Path

from pyspark import SparkContext

LIMIT = 120.0
"""Seconds that a JVM may take to write the archive. Without an archive, the next JVM only starts more slowly."""


def write_archive() -> None:
    """End the JVM of this process, and keep the archive that the JVM then writes, if LAKE_CLASS_ARCHIVE names one.

    Archives of another Java or Spark are removed.
    """
    gateway = SparkContext._gateway
    jvm = getattr(gateway, "proc", None)
    if "LAKE_CLASS_ARCHIVE" not in os.environ or jvm is None:
        return
    archive = Path(os.environ["LAKE_CLASS_ARCHIVE"])
    part = archive.with_suffix(".part")
    jvm.stdin.close()  # the JVM ends at the end of its standard input
    with suppress(OSError, subprocess.TimeoutExpired):
        if jvm.wait(LIMIT) == 0:
            part.rename(archive)
            for other in archive.parent.glob("classes-*.jsa"):
                if other != archive:
                    other.unlink()
