"""The lakes of these settings: one for the default events table, and inside it one for each other events table."""

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
    """The result of the export of one events table to its lake."""

    events_table: str
    lake: LakeAt
    outcome: ExportOutcome


def folder(config: Config, events_table: str) -> LakeAt:
    """Return the address of the lake of an events table."""
    if events_table == config.events_table:
        return config.exports
    return config.exports / re.sub(r"[^\w.\-]", _escaped, events_table)


def settings_for(config: Config, events_table: str) -> Config:
    """Return the settings by which this events table is exported."""
    given: dict[str, object] = {"export_dir": folder(config, events_table), "events_table": events_table}
    if events_table != config.events_table:
        # A catalog has the tables of one lake, so other lakes need other names. A REST catalog knows only its own name.
        given["export_iceberg_catalog"] = re.sub(r"\W", "_", f"{config.export_iceberg_catalog}_{events_table}")
        given["export_formats"] = ("parquet",) if config.export_iceberg_uri else config.export_formats
    return config.model_copy(update=given)


def require_settings(config: Config, events_table: str | None) -> Config:
    """Return the settings for exports of an events table; `events_table` None: the default one.

    Raises ExportFailedError for a table that was never written to.
    """
    if events_table is None or events_table == config.events_table:
        return config
    with connections.connect(config.database, "pipeline database", name="pipeline export") as connection:
        known = exported_tables(config, connection)
    if events_table not in known:
        raise ExportFailedError(f"there is no events table {events_table}; name one of {', '.join(known)}")
    return settings_for(config, events_table)


def export(
    config: Config,
    trigger: Trigger,
    on_event: OnEvent,
    stopped: Callable[[], bool],
    *,
    wait: bool = False,
    kept: KeptProcess | None = None,
) -> Sequence[TableExport]:
    """Export every existing events table, the default one first: one run for each that has new events.

    `kept`: holds the Spark session of the default one's run for the next run.

    Raises as `job.export`. If a table other than the default one fails, or is being exported already, the other
    tables are exported before the error is raised.
    """
    with connections.connect(config.database, "pipeline database", name="pipeline export") as connection:
        names = exported_tables(config, connection)
    made: list[TableExport] = []
    failed: ExportFailedError | None = None
    for name in names:
        one = settings_for(config, name)
        try:
            keeps = kept if name == config.events_table else None
            outcome = job.export(one, trigger, on_event, stopped, wait=wait, kept=keeps)
            made.append(TableExport(name, one.exports, outcome))
        except ExportFailedError as error:
            if isinstance(error, ExportStoppedError) or (
                name == config.events_table and not isinstance(error, ExportBusyError)
            ):
                raise  # an error of the folder concerns all lakes in it
            failed = failed or error
    if failed is not None:
        raise failed
    return made


def exported_tables(config: Config, connection: Connection) -> list[str]:
    """Return the events tables to export: the default one, then those that were written to and still exist."""
    return list(dict.fromkeys([config.events_table, *(str(table) for table in tables.with_known(connection, []))]))


def _escaped(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in found[0].encode())
