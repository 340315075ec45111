"""Compactions of the lakes: small files of changes become large ones, in a separate process, also during exports."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipeline.config.bucket import LakeAt
from pipeline.config.settings import Config
from pipeline.exports import extra, job, lakes, ledger
from pipeline.exports.child import OnEvent
from pipeline.postgres import connections


@dataclass(frozen=True)
class CompactionResult:
    """The result for one lake: the number of merged files, and of the files that replace them."""

    events_table: str
    lake: LakeAt
    files_before: int
    files_after: int


def compact(config: Config, on_event: OnEvent, stopped: Callable[[], bool]) -> Sequence[CompactionResult]:
    """Merge small files in each lake of these settings; starts no process for a lake without any.

    Raises ExportFailedError, and ExportStoppedError.
    """
    extra.require(config.export_formats)
    with connections.connect(config.database, "pipeline database", name="pipeline export") as connection:
        found = [lakes.settings_for(config, name) for name in lakes.exported_tables(config, connection)]
        due = [one for one in found if ledger.has_pending_merges(connection, one)]
    return [_compact(one, on_event, stopped) for one in due]


def _compact(config: Config, on_event: OnEvent, stopped: Callable[[], bool]) -> CompactionResult:
    log = job.log_file(config, f"compaction-{os.getpid()}")
    last = job.run_script(config, "compact.py", job.formats(config), log, on_event, stopped)
    counts = (int(last.get(name, 0)) for name in ("files_before", "files_after"))
    return CompactionResult(config.events_table, config.exports, *counts)
