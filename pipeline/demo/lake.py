"""The last part of the demo: Spark exports the log to Parquet, and DuckDB counts the events there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.text import Text

from pipeline.config.settings import Config
from pipeline.exports import extra, job
from pipeline.exports.child import ScriptEvent
from pipeline.postgres import connections
from pipeline.postgres.queries import statement

Counts = Counter[tuple[str, str]]
"""Table and action → events."""


@dataclass(frozen=True)
class LakeExport:
    """The export. `query`: DuckDB's; `differences`: counts that differ from the log's."""

    query: str
    counts: Counts
    files: int
    seconds: float
    differences: list[str]


def possible() -> bool:
    """Return True if Spark and DuckDB are installed: the extra `demo`."""
    return not extra.missing() and find_spec("duckdb") is not None


def export(console: Console, config: Config) -> LakeExport:
    """Export the whole log and count it on both sides. Raises ExportFailedError."""
    with console.status("exporting the log to Parquet with Spark") as status:

        def on_event(event: ScriptEvent) -> None:
            if event["event"] == "progress" and event["rows"]:
                status.update(Text(f"exporting the log to Parquet with Spark: {event['done'] / event['rows']:.0%}"))
            if event["event"] == "state":
                status.update(Text(f"updating the current state of {event['dataset']} with Spark"))

        outcome = job.export(config, "command", on_event, lambda: False)
    query = statement("demo", "count_files").strip().format(folder=_shown(folder(config)))
    counted = _counted(query)
    with connections.connect(config.database, "pipeline database", name="demo") as connection:
        rows = connection.execute(statement("demo", "count_events"), {"upto": outcome.exported_upto}).fetchall()
    logged = Counter({(table, action): number for table, action, number in rows})
    files = sum(1 for _ in (folder(config) / "changes").rglob("*.parquet"))
    return LakeExport(query, counted, files, outcome.seconds, list(_differences(logged, counted)))


def folder(config: Config) -> Path:
    """Return the folder of the demo's lake; no setting of the user names another."""
    assert isinstance(config.exports, Path)  # noqa: S101  the default
    return config.exports


def _counted(query: str) -> Counts:
    import duckdb

    with duckdb.connect() as connection:
        return Counter({(table, action): number for table, action, number in connection.execute(query).fetchall()})


def _differences(logged: Counts, counted: Counts) -> Iterator[str]:
    for table, action in sorted(logged | counted):
        ours, theirs = logged[table, action], counted[table, action]
        if ours != theirs:
            yield f"{table}: {theirs:,} of action {action} in the Parquet files, {ours:,} in the log"


def _shown(folder: Path) -> str:
    path = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    return str(path).replace("'", "''")
