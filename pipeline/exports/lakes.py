"""The lakes of these settings: that of the default events table, and in it a folder for each other one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipeline.config.bucket import LakeAt
from pipeline.config.settings import Config
from pipeline.errors import ExportBusyError, ExportFailedError, ExportStoppedError
from pipeline.exports import job
from pipeline.exports.child import KeptProcess, OnEvent
from pipeline.exports.job import ExportOutcome
from pipeline.exports.ledger import Trigger
from pipeline.log import tables
from pipeline.postgres import connections
from pipeline.postgres.connections import Connection


@dataclass(frozen=True)
class TableExport:
    """What has come of the export of one events table to its lake."""

    events_table: str
    lake: LakeAt
    outcome: ExportOutcome


def folder(config: Config, events_table: str) -> LakeAt:
    """Where the lake of an events table is."""
    if events_table == config.events_table:
        return config.exports
    return config.exports / re.sub(r"[^\w.\-]", _escaped, events_table)


def of(config: Config, events_table: str) -> Config:
    """The settings by which that events table is the one that is exported."""
    given: dict[str, object] = {"export_dir": folder(config, events_table), "events_table": events_table}
    if events_table != config.events_table:
        # A catalog has the tables of one lake, and a REST catalog knows no other by another name.
        given["export_iceberg_catalog"] = re.sub(r"\W", "_", f"{config.export_iceberg_catalog}_{events_table}")
        given["export_formats"] = ("parquet",) if config.export_iceberg_uri else config.export_formats
    return config.model_copy(update=given)


def named(config: Config, events_table: str | None) -> Config:
    """The same; None: the default one. Raises ExportFailedError for a table that was never written to."""
    if events_table is None or events_table == config.events_table:
        return config
    with connections.connect(config.database, "pipeline database", name="pipeline export") as connection:
        known = exported_tables(config, connection)
    if events_table not in known:
        raise ExportFailedError(f"there is no events table {events_table}; name one of {', '.join(known)}")
    return of(config, events_table)


def export(
    config: Config,
    trigger: Trigger,
    on_event: OnEvent,
    stopped: Callable[[], bool],
    *,
    wait: bool = False,
    kept: KeptProcess | None = None,
) -> Sequence[TableExport]:
    """Export every events table that there is, the default one first: a run for each that has something new.

    `kept`: where the Spark session of the default one's run waits for the next.

    Raises as `job.export`; where another than the default one fails, or one is being exported already, the rest is
    exported before that.
    """
    with connections.connect(config.database, "pipeline database", name="pipeline export") as connection:
        names = exported_tables(config, connection)
    made: list[TableExport] = []
    failed: ExportFailedError | None = None
    for name in names:
        one = of(config, name)
        try:
            keeps = kept if name == config.events_table else None
            outcome = job.export(one, trigger, on_event, stopped, wait=wait, kept=keeps)
            made.append(TableExport(name, one.exports, outcome))
        except ExportFailedError as error:
            if isinstance(error, ExportStoppedError) or (
                name == config.events_table and not isinstance(error, ExportBusyError)
            ):
                raise  # what is wrong with the folder is wrong with all in it
            failed = failed or error
    if failed is not None:
        raise failed
    return made


def exported_tables(config: Config, connection: Connection) -> list[str]:
    """The default events table first; others as soon as something was written to them, as long as they exist."""
    return list(dict.fromkeys([config.events_table, *(str(table) for table in tables.with_known(connection, []))]))


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode())
