"""How the JVM of a run starts: soonest for few events, with a tight heap for some, as Java does by itself for many."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from pipeline.exports.java import Java

FEW_EVENTS = 200_000
"""A run of so many ends before the optimising compiler and a parallel collector have paid for themselves."""
SOME_EVENTS = 2_000_000
"""A run of so many has no use for more than one thread that collects garbage."""
TIGHT = "-XX:+UseSerialGC -XX:MaxNewSize=64m -XX:MinHeapFreeRatio=5 -XX:MaxHeapFreeRatio=15"
"""The heap grows with what it holds; by itself it grows to its limit, whatever it holds."""
_ARENAS = "MALLOC_ARENA_MAX"
SOON = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"
THEIRS = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS")
"""Where users give options of their own; ours might contradict them, so there are none then."""


def options(
    java: Java, master: str, events: int | None, data_dir: Path, environment: Mapping[str, str]
) -> dict[str, str]:
    """The variables by which Spark gives a JVM its options; `events`: how many the run reads, None: not known.

    Classes are loaded from an archive in the data directory. Without one, the run leaves it at the path that is in
    LAKE_CLASS_ARCHIVE. Options of the user's own are left alone.
    """
    if not re.match(r"local(\[|$)", master) or any(environment.get(name) for name in THEIRS):
        return {}
    if events is None or events > SOME_EVENTS:
        return {}
    if events > FEW_EVENTS:
        return {"SPARK_SUBMIT_OPTS": f"{TIGHT} {_QUIET}", _ARENAS: environment.get(_ARENAS, "2")}
    archive = data_dir.absolute() / "java" / f"classes-{_key(java)}.jsa"
    if archive.is_file():
        return _variables(f'"-XX:SharedArchiveFile={archive}"')
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
    except OSError:  # the run goes on without
        return _variables()
    part = archive.with_suffix(".part")
    return {**_variables(f'"-XX:ArchiveClassesAtExit={part}"'), "LAKE_CLASS_ARCHIVE": str(archive)}


def _variables(*more: str) -> dict[str, str]:
    return {"SPARK_LAUNCHER_OPTS": SOON, "SPARK_SUBMIT_OPTS": " ".join([SOON, _QUIET, *more])}


def _key(java: Java) -> str:
    """Another for each Java and each Spark: their classes differ."""
    try:
        spark = version("pyspark")
    except PackageNotFoundError:
        spark = ""
    found = find_spec("pyspark")
    parts = [str(java.executable), java.version, spark, str(found and found.origin)]
    return sha256("\0".join(parts).encode()).hexdigest()[:12]
