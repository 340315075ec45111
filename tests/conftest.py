"""Every test starts without the settings of the shell it was started from."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.fixtures.spark import JVM_OPTIONS

pytest_plugins = [
    "tests.fixtures.postgres",
    "tests.fixtures.server",
    "tests.fixtures.rigs",
    "tests.fixtures.api",
    "tests.fixtures.altering",
]

for name in [name for name in os.environ if name.startswith("PIPELINE_") and not name.startswith("PIPELINE_TEST_")]:
    del os.environ[name]

# What `make test` has archived; without it JVMs start more slowly.
_ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
_SHARED = f" -XX:SharedArchiveFile={_ARCHIVE}" if _ARCHIVE.is_file() and _ARCHIVE.stat().st_size else ""
os.environ.setdefault("JDK_JAVA_OPTIONS", JVM_OPTIONS + _SHARED)
