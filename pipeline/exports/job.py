"""One run of an export: the check for new events, the script that exports them, and the row that records the run."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import psycopg

from pipeline.config.bucket import LakeBucket
from pipeline.config.settings import Config
from pipeline.errors import ExportBusyError, ExportFailedError, ExportStoppedError, PipelineError
from pipeline.exports import child, extra, java, ledger
from pipeline.exports.child import KeptProcess, OnEvent, ScriptEvent, SparkScript
from pipeline.exports.java import JavaInstallation
from pipeline.exports.ledger import EndState, Trigger
from pipeline.exports.window import ExportWindow
from pipeline.postgres import connections
from pipeline.postgres.connections import Connection
from pipeline.process import python_path

LOGS_KEPT = 50
COMPACTION = "pipeline compaction"
"""The application name of a compaction's session. It locks the lake for a moment; exports wait for that."""
_NAMES = {"compact.py": COMPACTION}
WAIT_SECONDS = 0.5
"""Seconds between two checks of whether the exporter that this one waits for has ended."""

FEW_EVENTS = 200_000
"""A run of at most this many events ends before the optimising compiler and a parallel garbage collector pay off."""
SOME_EVENTS = 2_000_000
"""A run of at most this many events needs only one thread for garbage collection."""
TIGHT_HEAP = "-XX:+UseSerialGC -XX:MaxNewSize=64m -XX:MinHeapFreeRatio=5 -XX:MaxHeapFreeRatio=15"
"""Options that let the heap grow with its content; without them, it grows to its limit in any case."""
_ARENAS = "MALLOC_ARENA_MAX"
QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_QUIET_JVM = "-Xlog:disable -Xlog:all=error:stderr"
USERS_JAVA_OPTIONS = (
    "JDK_JAVA_OPTIONS",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "SPARK_SUBMIT_OPTS",
    "SPARK_LAUNCHER_OPTS",
)
"""Environment variables with JVM options of users. If one is set, no options are added: they might conflict."""


@dataclass(frozen=True)
class ExportOutcome:
    """The result of an export. `run` None: without new events no run was started. `rows`: exported events."""

    exported_upto: int
    run: int | None = None
    rows: int = 0
    seconds: float = 0.0


def export(
    config: Config,
    trigger: Trigger,
    on_event: OnEvent,
    stopped: Callable[[], bool],
    *,
    wait: bool = False,
    kept: KeptProcess | None = None,
) -> ExportOutcome:
    """Export the events that the lake lacks, up to the head of the log.

    `on_event` gets each event of the script. Once `stopped` returns True, the script is ended. If another exporter is
    running and `wait` is true, this one waits for it, and `on_event` gets its progress. `kept` holds the Spark session
    between two runs.

    Raises ExportBusyError if another exporter is running and `wait` is false, ExportFailedError with the reason, which
    is also stored in the run's row, and ExportStoppedError.
    """
    extra.require(config.export_formats)
    with connections.connect(config.database, "pipeline database", name="pipeline export") as connection:
        window = _in_turn(config, connection, on_event, stopped, wait)
        require_lake(config, window)
        if not window.anything_new and not _misses_jump(config, window):
            return ExportOutcome(window.exported_upto)
        began = time.monotonic()
        run = ledger.begin_run(connection, trigger)
        ended: tuple[EndState, str | None] = ("done", None)
        try:
            log = log_file(config, f"export-{run}")
            ledger.set_log(connection, run, str(log))
            kept = kept if config.export_keep_session_seconds else None
            arguments = _arguments(config, run, kept)
            last = run_script(config, "export.py", arguments, log, on_event, stopped, window.behind or None, kept)
        except BaseException as error:
            ended = _how_it_ended(error)
            raise
        finally:
            _finish(config, connection, run, *ended)
    upto = int(last.get("exported_upto", window.head))
    return ExportOutcome(upto, run, int(last.get("rows", 0)), time.monotonic() - began)


def _in_turn(
    config: Config, connection: Connection, on_event: OnEvent, stopped: Callable[[], bool], wait: bool
) -> ExportWindow:
    """Return the lake's progress, once no other exporter uses it; this session keeps the turn until it ends.

    Servers take turns. An export by `spark-submit`, or one that has outlived its server, locks the lake without a turn.
    """
    before: ScriptEvent = {}
    ours = False
    while True:
        ours = ours or ledger.take_turn(connection, config)
        window = ledger.window(connection, config)
        if ours and not window.holder:
            return window
        holder = window.holder or ledger.running(connection) or "somebody"
        if not wait and holder != COMPACTION:
            raise ExportBusyError(f"an export is already running: {holder}; wait for it, or end it")
        if stopped():
            raise ExportStoppedError("stopped while it waited for another export, which continues")
        now = {"event": "waiting", "holder": holder, "exported_upto": window.exported_upto, "head": window.head}
        if now != before:
            before = now
            on_event(now)
        time.sleep(WAIT_SECONDS)


def require_lake(config: Config, window: ExportWindow) -> None:
    """Raise ExportFailedError if the files of the ledger are not in the folder.

    The export itself checks a bucket, since it has the credentials.
    """
    if isinstance(config.exports, LakeBucket):
        return
    if window.exported_upto and not (config.exports / "manifest.json").exists():
        raise ExportFailedError(
            f"{config.exports} is empty, but events up to seq {window.exported_upto} were exported to it; restore or "
            "mount it, or set another PIPELINE_EXPORT_DIR to export everything again"
        )


def _misses_jump(config: Config, window: ExportWindow) -> bool:
    """Return True if the log has jumped since the last run: then the lake may have events that the log lost.

    The next run checks a bucket, since it has the credentials.
    """
    if not (window.jump and window.known) or isinstance(config.exports, LakeBucket):
        return False
    try:
        head = json.loads((config.exports / "manifest.json").read_bytes())
    except (OSError, ValueError):
        return False
    return int(head.get("jump", 0)) < window.jump


def state(
    config: Config, table: str, as_of: str, output: Path | None, on_event: OnEvent, stopped: Callable[[], bool]
) -> ScriptEvent:
    """Write a table as it was after a seq, or at a time in ISO 8601; returns the script's last event.

    Raises ExportFailedError.
    """
    extra.require()
    arguments = ["--as-of", as_of]
    if output is not None:
        arguments += ["--output", str(output.absolute())]
    log = log_file(config, f"state-{os.getpid()}")
    return run_script(config, "state.py", [*arguments, table], log, on_event, stopped)


def scripts() -> Path:
    """Return the folder of the Spark scripts: in the wheel, else in the repository."""
    package = Path(__file__).parents[1]
    shipped = package / "_spark"
    return shipped if shipped.is_dir() else package.parent / "spark"


def python_environment() -> dict[str, str]:
    """Return the environment of a script: this process's environment without settings of the pipeline."""
    found = python_path.environment(scripts())
    return {name: value for name, value in found.items() if not name.startswith("PIPELINE_")}


def run_script(
    config: Config,
    name: str,
    arguments: Sequence[str],
    log: Path,
    on_event: OnEvent,
    stopped: Callable[[], bool],
    events: int | None = None,
    kept: KeptProcess | None = None,
) -> ScriptEvent:
    """Run a script, and return its last event; `events`: how many it reads, None: not known.

    Raises ExportFailedError.
    """
    found = java.find(os.environ)
    environment: dict[str, str | None] = {
        **python_environment(),
        **found.environment(config.data_dir),
        **jvm_options(found, config.spark_master, events, config.data_dir, os.environ),
        **_local(config.spark_master),
        "PIPELINE_DATABASE_DSN": connections.conninfo(
            config.database, application_name=_NAMES.get(name, "pipeline export")
        ),
        "PIPELINE_SPARK": json.dumps(config.spark),
    }
    lake = ["--export-dir", str(config.exports), "--events-table", config.events_table]
    script = SparkScript(
        command=[sys.executable, str(scripts() / name), "--master", config.spark_master, *lake, *arguments],
        environment={key: value for key, value in environment.items() if value is not None},
        log=log,
        seconds=config.export_timeout,
        again=arguments if kept else None,
    )
    return child.run(script, on_event, stopped, kept)


def _arguments(config: Config, run: int, kept: KeptProcess | None) -> list[str]:
    """Return the arguments of a run, without those that name the lake."""
    made = ["--run", str(run), "--keep", str(config.export_keep_seconds), *formats(config)]
    made += ["--checkpoints", str(config.export_checkpoints_seconds)]
    made += ["--latest-age", str(config.export_latest_age_seconds)]
    made += ["--connections", str(config.export_connections)]
    if kept is not None:
        made += ["--keep-session", str(config.export_keep_session_seconds)]
    return made


def formats(config: Config) -> list[str]:
    """Return the arguments that name the formats of the lake."""
    found = ["--formats", ",".join(config.export_formats), "--iceberg-catalog", config.export_iceberg_catalog]
    return [*found, "--iceberg-uri", config.export_iceberg_uri]


def _local(master: str) -> dict[str, str | None]:
    """Return arguments by which local Spark listens on the loopback address only, and resolves no host name."""
    alone = re.match(r"local(\[|$)", master) and "SPARK_LOCAL_IP" not in os.environ
    return {"SPARK_LOCAL_IP": "127.0.0.1"} if alone else {}


def log_file(config: Config, name: str) -> Path:
    """Return the file for a run's log, and remove the oldest logs."""
    folder = config.data_dir.absolute() / "logs"
    kind = name.partition("-")[0]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        kept = sorted(folder.glob(f"{kind}-*.log"), key=lambda path: path.stat().st_mtime, reverse=True)
        for old in kept[LOGS_KEPT - 1 :]:
            old.unlink(missing_ok=True)
        path = folder / f"{name}.log"
        path.unlink(missing_ok=True)  # left by a run of another pipeline database
    except OSError as error:
        raise ExportFailedError(f"{error.filename or folder}: {error.strerror}; fix that") from error
    return path


def _how_it_ended(error: BaseException) -> tuple[EndState, str]:
    reason = str(error) if isinstance(error, PipelineError) else f"interrupted by {type(error).__name__}"
    return "stopped" if isinstance(error, ExportStoppedError) else "failed", reason


def _finish(config: Config, connection: Connection, run: int, state: EndState, reason: str | None) -> None:
    """Record how a run ended, over a new connection if the old one broke. If both fail, the next run records it."""
    try:
        ledger.finish_run(connection, run, state, reason)
    except psycopg.Error:
        with (
            suppress(psycopg.Error, PipelineError),
            connections.connect(config.database, "pipeline database", name="pipeline export") as again,
        ):
            ledger.finish_run(again, run, state, reason)


def jvm_options(
    java: JavaInstallation, master: str, events: int | None, data_dir: Path, environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables by which Spark gives a JVM its options. `events`: how many the run reads, None: unknown.

    Classes are loaded from an archive in the data directory. If there is none yet, the run creates it at the path in
    LAKE_CLASS_ARCHIVE. Options that the user has set are not changed.
    """
    if not re.match(r"local(\[|$)", master) or any(environment.get(name) for name in USERS_JAVA_OPTIONS):
        return {}
    if events is None or events > SOME_EVENTS:
        return {}
    if events > FEW_EVENTS:
        return {"SPARK_SUBMIT_OPTS": f"{TIGHT_HEAP} {_QUIET_JVM}", _ARENAS: environment.get(_ARENAS, "2")}
    archive = data_dir.absolute() / "java" / f"classes-{_archive_key(java)}.jsa"
    if archive.is_file():
        return _jvm_variables(f'"-XX:SharedArchiveFile={archive}"')
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
    except OSError:  # the run continues without it
        return _jvm_variables()
    part = archive.with_suffix(".part")
    return {**_jvm_variables(f'"-XX:ArchiveClassesAtExit={part}"'), "LAKE_CLASS_ARCHIVE": str(archive)}


def _jvm_variables(*more: str) -> dict[str, str]:
    return {"SPARK_LAUNCHER_OPTS": QUICK_START, "SPARK_SUBMIT_OPTS": " ".join([QUICK_START, _QUIET_JVM, *more])}


def _archive_key(java: JavaInstallation) -> str:
    """Return the name of the class archive for this Java and this Spark: others have other classes."""
    try:
        spark = version("pyspark")
    except PackageNotFoundError:
        spark = ""
    found = find_spec("pyspark")
    parts = [str(java.executable), java.version, spark, str(found and found.origin)]
    return sha256("\0".join(parts).encode()).hexdigest()[:12]
