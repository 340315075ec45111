"""Merge small files of changes into large ones: `spark-submit compact.py`, which `pipeline export compact` starts.

The script prints each step as JSON, one event a line. Exit status 0: all files that are due are merged; 1: some are
not, and the last line says why. The script starts Spark only if there is much to merge.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from functools import cache

from pyspark.sql import SparkSession

from lake import ledger
from lake.compaction import run as compaction
from lake.iceberg import names, withdrawn_tables
from lake.iceberg.ledger import IcebergLedger
from lake.running import script
from lake.storage import identity


def main(argv: list[str]) -> int:
    """Compact the lake that the arguments name."""
    return script.run(run, _arguments(argv))


def run(dsn: str, arguments: argparse.Namespace) -> None:
    """Compact the lake, while exports continue."""
    with ledger.open_ledger(dsn) as opened_ledger, ExitStack() as stack:

        @cache
        def spark() -> SparkSession:
            return stack.enter_context(script.spark(arguments, "pipeline compaction"))

        def report_wait(reason: str) -> None:
            script.print_event("waits", reason=reason)

        lake = identity.open_for_reading(opened_ledger, identity.folder_at(arguments.export_dir))
        if not names.is_wanted(arguments.formats) and IcebergLedger(lake).read_catalog():
            with compaction.lake_lock(lake, report_wait):
                withdrawn_tables.withdraw(lake)
        before = after = 0
        for made in compaction.compact(lake, spark, report_wait):
            before, after = before + made.files_before, after + made.files_after
            script.print_event("compacted", **vars(made))
        script.print_event("done", files_before=before, files_after=after)


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = script.parser("compact.py", __doc__)
    parser.add_argument("--formats", default="parquet", help="formats of the lake: parquet, or parquet,iceberg")
    parser.add_argument("--iceberg-catalog", default="lake", help="name of the Iceberg catalog (default: %(default)s)")
    parser.add_argument("--iceberg-uri", default="", help="URL of a REST catalog; default: the pipeline database")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
