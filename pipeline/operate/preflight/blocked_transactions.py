"""What `check` reports of changes that are not in the log: where the source stops, and parked dead letters."""

from __future__ import annotations

from pipeline.capture.source import blocked_transactions, sources
from pipeline.config.settings import Config
from pipeline.findings import Finding, Findings
from pipeline.log import dead_letters
from pipeline.postgres.connections import Connection
from pipeline.terminal import drawing
from pipeline.wal import lsn


def findings(config: Config, connection: Connection) -> Findings:
    """Findings, if any; none when everything is in the log, or nothing was ever replicated."""
    stored = sources.find_in_any(connection, config.source_id)
    if stored is None:
        return
    stop = blocked_transactions.current(connection, stored.id)
    if stop is not None:
        at = lsn.show(stop.commit_lsn)
        text = f"cannot send the transaction that commits at {at}: {stop.cause} (SQLSTATE {stop.sqlstate})"
        remedy = f"fix the cause, or run `{blocked_transactions.SKIP} {at}` to continue without it"
        yield Finding("error", "source stops", text, remedy, waits=True)
    parked = dead_letters.counts(connection)["parked"]
    if parked:
        text = f"{drawing.count(parked, 'change')} could not be written to the log"
        yield Finding("warning", "dead letters", text, "see `pipeline dead-letters list`, then retry or discard them")
