"""Tell the user who started `serve` when it replicates, and when it has stopped: one log line each."""

from __future__ import annotations

import logging

from pipeline.capture.source.sources import ReplicationSource
from pipeline.config.settings import Config
from pipeline.log.table import EventsTable
from pipeline.postgres import databases, psql
from pipeline.printable import shortest

logger = logging.getLogger(__name__)

_SHOWN_EVENTS = 20
"""Events that the printed psql command shows."""


def announce_replication(config: Config, source: ReplicationSource) -> None:
    """Log which database is replicated, by which slot, and the psql command that shows the newest events."""
    logger.info(
        "replicating database %s by slot %s; look at the events: %s",
        source.database_name,
        source.slot,
        psql_command(config),
        extra={"action": "replication.streaming"},
    )


def psql_command(config: Config) -> str:
    """Return the psql command that shows the newest events of the default events table."""
    table = EventsTable.parse(config.events_table)
    name = shortest(table.name) if table.schema == "public" else shortest(table.schema, table.name)
    query = f"select * from {name} order by seq desc limit {_SHOWN_EVENTS}"  # noqa: S608
    embedded = databases.is_embedded(config, databases.PIPELINE)
    return psql.command(config.database, query, databases.embedded_server(config).bin_dir if embedded else None)


def announce_stop(status: int) -> None:
    """Log that the server has stopped, and that the next start loses nothing."""
    how = f"stopped with exit status {status}" if status else "stopped"
    logger.info("%s; the next `pipeline serve` continues from here", how, extra={"action": "serve.stopped"})
