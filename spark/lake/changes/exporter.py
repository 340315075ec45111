"""The change export: each range of the log goes into the lake once, one range after the other.

A range goes through the ledger's states. `writing`: tasks write files where no reader looks; if the export ends here,
they are removed. `publishing`: the ledger knows every file and its checksum, so the next exporter can finish the moves;
none of the files was visible before, and none will be written again. `committed`: all are in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adbc_driver_postgresql import dbapi
from pyspark.sql import SparkSession

from lake import layout
from lake.changes import plan, retention_check
from lake.changes.writer import WrittenFile, write
from lake.cluster import each
from lake.errors import ExportError, Inexact
from lake.folder import Folder, manifest, schema_content
from lake.identity import Lake, identify
from lake.ledger import Ledger

RANGE_ROWS = 4_000_000
"""Seqs that are exported at once: the most work that a crash loses, and what the driver plans at a time."""


@dataclass(frozen=True)
class Progress:
    """How far the export of a range is: its bounds, the rows in it, the rows in tasks that have ended."""

    after_seq: int
    upto_seq: int
    rows: int
    done: int


def open_lake(ledger: Ledger, folder: Folder, events_table: str) -> Lake:
    """Find or make the lake in `folder`, take its lock, and finish or remove what an earlier exporter left.

    Raises TargetUnfit for a folder that is not ours, ExportRunning while another exporter is at work.
    """
    folder.require_writable()
    lake = identify(ledger, folder, events_table)
    ledger.lock(lake.id)
    _write_schemas(lake, *(export["schemas"] for export in ledger.committed(lake.id)))
    _recover(lake)
    folder.clear_staging()
    _write_manifest(lake)
    return lake


def export(
    spark: SparkSession,
    lake: Lake,
    connection: dbapi.Connection,
    dsn: str,
    bounds: tuple[int, int],
    *,
    run: int | None,
    rows_per_file: int,
    report: Callable[[Progress], None],
) -> list[WrittenFile]:
    """Export one range; returns its files. Raises ExportError, after which the range is not in the lake."""
    number = lake.ledger.begin(lake.id, *bounds, run)
    try:
        parts = plan.parts(connection, dsn, lake.events_table, *bounds)
        folder = lake.root / layout.export_staging(number)
        pieces = [piece for part in parts for piece in part.pieces(str(folder), rows_per_file)]
        rows = sum(part.rows for part in parts)
        average = rows / max(1, len(pieces))
        report(Progress(*bounds, rows, 0))
        results = each(spark, write, pieces, lambda done: report(Progress(*bounds, rows, round(done * average))))
        files = [file for result in results for file in result]
        _require_all(parts, files)
        retention_check.require(connection, lake.events_table, bounds[0])
    except (ExportError, dbapi.Error) as error:
        lake.ledger.fail(number, str(error))
        lake.folder.clear_staging()
        raise
    publish(lake, number, files, plan.datasets(parts))
    report(Progress(*bounds, rows, rows))
    return files


def publish(lake: Lake, number: int, files: list[WrittenFile], schemas: dict[str, Any]) -> None:
    """Make staged files part of the lake."""
    entries = [
        {
            "path": layout.change_file(file.dataset, file.version, file.date, file.first_seq, file.last_seq),
            "staged": str(Path(file.path).relative_to(lake.root)),
            "dataset": file.dataset,
            "schema": file.version,
            "rows": file.rows,
            "bytes": file.bytes,
            "sha256": file.sha256,
            "first_seq": file.first_seq,
            "last_seq": file.last_seq,
        }
        for file in files
    ]
    lake.ledger.publish(number, entries, schemas)
    _finish(lake, number, entries, schemas)
    lake.folder.clear_staging()
    _write_manifest(lake)


def _finish(
    lake: Lake, number: int, files: Iterable[Mapping[str, Any]], schemas: Mapping[str, Mapping[str, Any]]
) -> None:
    """Do what is left once the ledger knows the files. Raises Inexact when a file no longer exists."""
    _write_schemas(lake, schemas)
    lake.folder.move_in(files)
    lake.ledger.commit(number)


def _recover(lake: Lake) -> None:
    for unfinished in lake.ledger.unfinished(lake.id):
        if unfinished.state == "publishing":
            try:
                _finish(lake, unfinished.id, unfinished.files, unfinished.schemas)
            except Inexact as error:
                lake.folder.move_out(unfinished.files)
                lake.ledger.fail(unfinished.id, f"its process ended, and {error}")
        else:
            lake.ledger.fail(unfinished.id, "its process ended before all was written")


def _require_all(parts: list[plan.Part], files: list[WrittenFile]) -> None:
    for part in parts:
        written = sum(file.rows for file in files if (file.dataset, file.version) == (part.dataset, part.version))
        if written != part.rows:
            raise Inexact(f"{part.dataset}: {written} rows were written of {part.rows}; nothing of it was published")


def _write_schemas(lake: Lake, *exports: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
    """Write the schema files, before files with new columns are in place: a reader that knows the old columns only
    would fail on those.

    `exports`: their schemas as the ledger has them, oldest first; a version's columns only get more and wider.
    """
    newest = {
        layout.schema_file(dataset, int(version)): schema["columns"]
        for schemas in exports
        for dataset, versions in schemas.items()
        for version, schema in versions.items()
    }
    for path, columns in newest.items():
        lake.folder.write(path, schema_content(columns))


def _write_manifest(lake: Lake) -> None:
    exports = lake.ledger.committed(lake.id)
    lake.folder.write(layout.MANIFEST, manifest(lake.id, lake.events_table, exports))
