"""Every test starts without the settings of the shell it was started from."""

from __future__ import annotations

import os

pytest_plugins = ["tests.fixtures.postgres", "tests.fixtures.server", "tests.fixtures.rigs", "tests.fixtures.api"]

for name in [name for name in os.environ if name.startswith("PIPELINE_") and not name.startswith("PIPELINE_TEST_")]:
    del os.environ[name]

# JVMs of tests live for seconds: they start sooner and use less of both cores without the optimising compiler.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
