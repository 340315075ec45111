"""Bring the lake up to the head of the log: `spark-submit export.py`, which `pipeline export run` starts.

The script prints each step as JSON, one event a line. Exit status 0: everything up to the head is in the lake; 1: some
events are not, and the last line says why.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial

from adbc_driver_postgresql import dbapi
from pyspark.sql import SparkSession

from lake import conversion, ledger
from lake.changes import exporter, plan, retention_check
from lake.errors import ExportError
from lake.folding import current
from lake.folding.current import PendingState
from lake.iceberg import names, withdrawn_tables
from lake.iceberg.ledger import CatalogSettings
from lake.running import class_archive, parent, script
from lake.running.kept_session import KeptSession
from lake.states.ledger import TableRoot
from lake.storage import replaced_files, shared_folder
from lake.storage.identity import Lake, folder_at
from pyspark_sequin_events import catalog

MOST_RANGES = 1000
"""The most ranges of equal width in seq. If a log needs more, ranges have equal numbers of events instead."""


def main(argv: list[str]) -> int:
    """Run the export that the arguments describe, and further runs that are requested while Spark stays up."""
    with KeptSession() as kept:
        requested: list[str] | None = argv
        while requested is not None:
            arguments = _arguments(requested)
            if status := script.run(partial(run, kept=kept), arguments):
                return status
            requested = _next_arguments(kept, arguments.keep_session)
    class_archive.write_archive()
    return 0


def _next_arguments(kept: KeptSession, seconds: float) -> list[str] | None:
    if not seconds or not kept.is_worth_keeping:
        return None
    script.print_event("kept", seconds=seconds)
    requested = parent.next_run(seconds)
    return requested if requested is not None and kept.is_usable() else None


def run(dsn: str, arguments: argparse.Namespace, kept: KeptSession) -> None:
    """Export up to the newest event at the start, then bring the states up to it, then the Iceberg tables.

    If there is nothing new, Spark is not started.
    """
    with ledger.open_ledger(dsn) as opened_ledger, catalog.connect(dsn) as connection:
        lake = exporter.open_lake(opened_ledger, folder_at(arguments.export_dir), arguments.events_table)
        current.recover(lake, arguments.keep, arguments.checkpoints)
        after = retention_check.begins_after(opened_ledger, lake.id, connection, arguments.events_table)
        head = catalog.head(connection, arguments.events_table)
        rows = 0
        pending = None if after < head else current.find_outdated(lake, arguments.latest_age)
        if pending is None or not all(each.error for each in pending):
            rows = _export(dsn, arguments, lake, connection, (after, head), kept, pending)
        else:
            _fold(None, lake, arguments, pending)
        script.print_event("done", exported_upto=max(after, head), rows=rows)


def _export(
    dsn: str,
    arguments: argparse.Namespace,
    lake: Lake,
    connection: dbapi.Connection,
    bounds_of_all: tuple[int, int],
    kept: KeptSession,
    pending: Sequence[PendingState] | None,
) -> int:
    """Export what is new, on Spark, and return the number of rows.

    `pending`: states to fold if no event is new, as a crash may have left them; None: find them after the export.
    """
    after, head = bounds_of_all
    todo = list(catalog.ranges(connection, arguments.events_table, bounds_of_all, arguments.range_rows, MOST_RANGES))
    script.print_event("begins", after_seq=after, upto_seq=head, ranges=len(todo))
    rows = 0
    with kept.spark(arguments, "pipeline export") as spark:
        shared_folder.require_shared(spark, lake.root)
        for number, bounds in enumerate(todo, 1):
            files = exporter.export(
                spark,
                lake,
                connection,
                dsn,
                bounds,
                run=arguments.run,
                rows_per_file=arguments.rows_per_file,
                connections=arguments.connections,
                report=partial(report_progress, number, len(todo)),
            )
            rows += sum(file.rows for file in files)
            script.print_event(
                "committed", range=number, ranges=len(todo), upto_seq=bounds[1], files=len(files), rows=rows
            )
        _fold(spark, lake, arguments, current.find_outdated(lake, arguments.latest_age) if pending is None else pending)
    return rows


def _fold(
    spark: SparkSession | None, lake: Lake, arguments: argparse.Namespace, pending: Sequence[PendingState]
) -> None:
    """Bring the states, then the Iceberg tables, up to what is exported."""
    try:
        current.fold_all(spark, lake, pending, lambda made: script.print_event("state", **vars(made)))
    except ExportError:
        behind = current.find_outdated(lake, arguments.latest_age)
        if all(each.error for each in behind):  # else the next run brings all tables to one seq
            _publish(lake, arguments, [each.root for each in behind])
        raise
    _publish(lake, arguments, ())


def _publish(lake: Lake, arguments: argparse.Namespace, behind: Sequence[TableRoot]) -> None:
    if not names.is_wanted(arguments.formats):
        withdrawn_tables.withdraw(lake)
        conversion.retire_old_versions(lake)
        return
    from lake.iceberg import publish  # PyIceberg is an extra

    settings = CatalogSettings(arguments.iceberg_catalog, arguments.iceberg_uri)
    upto = publish.publish(lake, settings, arguments.keep, behind)
    if upto is not None:
        script.print_event("iceberg", upto_seq=upto)
    conversion.retire_old_versions(lake)


def report_progress(number: int, ranges: int, now: exporter.ExportProgress) -> None:
    """Print the progress of a range."""
    script.print_event("progress", range=number, ranges=ranges, **vars(now))


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = script.parser("export.py", __doc__)
    parser.add_argument("--run", type=int, help="id in pipeline.export_runs, when the server starts this")
    parser.add_argument(
        "--keep",
        type=float,
        default=replaced_files.KEEP,
        help="seconds that replaced files are kept (default: %(default)g)",
    )
    parser.add_argument(
        "--checkpoints",
        type=float,
        default=replaced_files.CHECKPOINTS,
        help="seconds that the last current state of each day is kept (default: %(default)g)",
    )
    parser.add_argument(
        "--latest-age",
        type=float,
        default=0,
        help="seconds that the current state of a large table may lack a few changes (default: %(default)g)",
    )
    parser.add_argument(
        "--connections", type=int, default=exporter.CONNECTIONS, help="the most tasks that read the log at a time"
    )
    parser.add_argument("--formats", default="parquet", help="formats of the lake: parquet, or parquet,iceberg")
    parser.add_argument("--iceberg-catalog", default="lake", help="name of the Iceberg catalog (default: %(default)s)")
    parser.add_argument("--iceberg-uri", default="", help="URL of a REST catalog; default: the pipeline database")
    parser.add_argument(
        "--keep-session", type=float, default=0, help="seconds to wait for another run, requested on standard input"
    )
    parser.add_argument("--range-rows", type=int, default=exporter.RANGE_ROWS, help="seqs exported at once")
    parser.add_argument("--rows-per-file", type=int, default=plan.ROWS_PER_FILE, help="the most rows of a file")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
