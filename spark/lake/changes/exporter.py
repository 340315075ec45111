"""Exports changes: each range of the log goes into the lake once, one range after the other.

A range goes through these states of the ledger:

- `writing`: tasks write files where no reader looks; if the export ends here, the next one removes them.
- `publishing`: the ledger knows every file and its checksum, so the next exporter can finish the moves. No file was
  visible before, and no file will be written again.
- `committed`: all files are in place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from adbc_driver_postgresql import dbapi
from pyspark.sql import SparkSession

from lake import conversion
from lake.changes import plan, retention_check
from lake.changes.files import ChangeFile, ChangeFiles, Schemas
from lake.changes.manifest import LakeManifest
from lake.changes.plan import ExportPart
from lake.changes.writer import ExportPiece, WrittenFile, write
from lake.compaction import switching
from lake.errors import ExportError, FileMismatchError
from lake.folding import current
from lake.ledger import LakeLedger
from lake.lost import setting_aside
from lake.running.cluster import run_tasks
from lake.running.cores import cores
from lake.storage import layout
from lake.storage.folder import schema_content
from lake.storage.identity import Lake, LakeFolder, identify
from lake.storage.new_file import FileTarget
from lake.storage.where import ObjectPath
from pyspark_sequin_events import catalog

RANGE_ROWS = 4_000_000
"""Seqs of one range: a crash loses at most the work of one range, and the driver plans one range at a time."""

CONNECTIONS = 8
"""The most tasks that read the log at a time."""
FEW_ROWS = 50_000
"""The fewest rows that are worth a separate task and file."""


@dataclass(frozen=True)
class ExportProgress:
    """The progress of a range: its bounds, its rows, and the rows in tasks that have ended."""

    after_seq: int
    upto_seq: int
    rows: int
    done: int


def open_lake(ledger: LakeLedger, folder: LakeFolder, events_table: str) -> Lake:
    """Find or make the lake in `folder`, take its lock, and finish or remove the work that an earlier exporter left.

    Raises UnfitTargetError for a folder that is not ours, ExportRunningError while another exporter is at work.
    """
    folder.require_writable()
    lake = identify(ledger, folder, events_table)
    ledger.lock(lake.id)
    resume(lake)
    return lake


def resume(lake: Lake) -> None:
    """Finish or remove the work that an earlier exporter left, and set aside files that the ledger lost in a restore.

    The lake's lock must be held. Raises UnfitTargetError if the lake is ahead of the log.
    """
    jump = LakeManifest(lake).require_same_log()
    files = ChangeFiles(lake.ledger, lake.id)
    files.convert_old_entries()
    if jump is not None:
        setting_aside.set_aside_lost(lake, jump)
    for dataset, versions in files.newest_schemas().items():
        _write_schemas(lake, dataset, versions, only_missing=True)
    _recover(lake, files)
    lake.folder.clear_staging()
    conversion.convert(lake)
    switching.finish(lake)
    current.show_newest(lake)
    LakeManifest(lake).update()


def export(
    spark: SparkSession,
    lake: Lake,
    connection: dbapi.Connection,
    dsn: str,
    bounds: tuple[int, int],
    *,
    run: int | None,
    rows_per_file: int,
    connections: int = CONNECTIONS,
    report: Callable[[ExportProgress], None],
) -> list[WrittenFile]:
    """Export one range, and return its files. After an ExportError, the range is not in the lake.

    `connections`: the most tasks that read at a time; each has one connection to the pipeline database.
    """
    number = lake.ledger.begin(lake.id, *bounds, run)
    try:
        parts = plan.plan_parts(connection, dsn, lake.events_table, *bounds)
        target = lake.target(layout.export_staging(number), export=number)
        tasks = min(cores(spark), connections)
        pieces = divide(connection, parts, target, rows_per_file=rows_per_file, tasks=tasks)
        rows = sum(part.rows for part in parts)
        files = _write_all(
            spark, pieces, connections, lambda written: report(ExportProgress(*bounds, rows, round(written * rows)))
        )
        _require_all(parts, files)
        retention_check.require_kept(connection, lake.events_table, bounds[0])
    except (ExportError, dbapi.Error) as error:
        lake.ledger.fail(number, str(error))
        lake.folder.clear_staging()
        raise
    publish(lake, number, files, plan.schemas(parts))
    report(ExportProgress(*bounds, rows, rows))
    return files


def _write_all(
    spark: SparkSession, pieces: Sequence[ExportPiece], connections: int, report: Callable[[float], None]
) -> list[WrittenFile]:
    """Write the files of all pieces. `report` is called with the fraction that is written, beginning with 0."""
    report(0.0)
    results = run_tasks(spark, write, pieces, lambda done: report(done / max(1, len(pieces))), at_once=connections)
    return [file for result in results for file in result]


def publish(lake: Lake, number: int, files: Sequence[WrittenFile], schemas: Schemas) -> None:
    """Make staged files part of the lake."""
    listed = ChangeFiles(lake.ledger, lake.id).publish(number, files, schemas)
    _finish(lake, number, listed)
    lake.folder.clear_staging()
    LakeManifest(lake).update()


def _finish(lake: Lake, number: int, files: Sequence[ChangeFile]) -> None:
    """Move in files that the ledger knows, and commit them. Raises FileMismatchError if a file no longer exists."""
    schemas: dict[str, dict[int, Mapping[str, str]]] = {}
    for file in files:
        schemas.setdefault(file.dataset, {})[file.version] = file.columns
    for dataset, versions in schemas.items():
        _write_schemas(lake, dataset, versions)
    lake.folder.move_in(files)
    lake.ledger.commit(number)


def _recover(lake: Lake, files: ChangeFiles) -> None:
    for unfinished in lake.ledger.unfinished(lake.id):
        if unfinished.state != "publishing":
            lake.ledger.fail(unfinished.id, "its process ended before all was written")
            continue
        listed = files.of_export(unfinished.id)
        try:
            _finish(lake, unfinished.id, listed)
        except FileMismatchError as error:
            lake.folder.move_out(listed)
            lake.ledger.fail(unfinished.id, f"its process ended, and {error}")


def _require_all(parts: list[plan.ExportPart], files: list[WrittenFile]) -> None:
    written: Counter[tuple[object, ...]] = Counter()
    for file in files:
        written[_table_version(file)] += file.rows
    for part in parts:
        if written[_table_version(part)] != part.rows:
            raise FileMismatchError(
                f"{part.dataset}: rows written: {written[_table_version(part)]} of {part.rows}; "
                "nothing of it was published"
            )


def _table_version(of: plan.ExportPart | WrittenFile) -> tuple[object, ...]:
    return of.dataset, of.version, of.source_id, of.source_epoch, of.table_oid


def _write_schemas(
    lake: Lake, dataset: str, versions: Mapping[int, Mapping[str, str]], *, only_missing: bool = False
) -> None:
    """Write the schema files, before files with new columns are in place.

    A reader that knows only the old columns would fail on the new files. A lake in a bucket needs no schema files: its
    readers find the columns in the manifest.
    """
    if isinstance(lake.root, ObjectPath):
        return
    for version, columns in versions.items():
        path = layout.schema_file(dataset, version)
        if not only_missing or not (lake.root / path).exists():
            lake.folder.write(path, schema_content(columns))


def divide(
    connection: dbapi.Connection, parts: Sequence[ExportPart], target: FileTarget, *, rows_per_file: int, tasks: int
) -> list[ExportPiece]:
    """Divide parts into pieces for tasks. The largest come first, so that the longest task does not begin last.

    `tasks`: the tasks that run at a time. A piece has at most `rows_per_file` rows, unless one seq has more.
    """
    fair = ceil(sum(part.rows for part in parts) / max(1, tasks))
    most = min(rows_per_file, max(fair, FEW_ROWS))
    found = [each for part in parts for each in _divide_part(connection, part, target, most)]
    return [piece for _, piece in sorted(found, key=lambda each: -each[0])]


def _divide_part(
    connection: dbapi.Connection, part: ExportPart, target: FileTarget, most: int
) -> Iterator[tuple[int, ExportPiece]]:
    """Yield the pieces of a part, each with its rows, about."""
    number = ceil(part.rows / most)
    rows = ceil(part.rows / max(1, number))
    bounds = part.read.after, part.read.upto
    cuts = catalog.cut_seqs(connection, part.read.query, bounds, rows) if number > 1 else []
    after = bounds[0]
    for upto in [*cuts, bounds[1]]:
        if upto > after:
            read = replace(part.read, after=after, upto=upto)
            yield (
                rows,
                ExportPiece(
                    read, part.dataset, part.version, part.source_id, part.source_epoch, part.table_oid, target
                ),
            )
            after = upto
