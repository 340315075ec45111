"""Find the changes that the log will lack because of a new epoch, as far as they are known before it begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from pipeline.capture.source.sources import ReplicationSource
from pipeline.capture.source.walsender import SystemIdentity
from pipeline.log import recent_transactions
from pipeline.log.table import EventsTable
from pipeline.postgres.connections import Connection
from pipeline.snapshots import comparing, known_tables


@dataclass(frozen=True)
class HistoryGap:
    """The changes of `database` after the LSN `staged` that the log may lack in a new epoch, and the `reasons` for it.

    `bytes`: WAL written after `staged`, None if the source has another history. `newest`: commit time of the log's
    newest event, None for an empty log. `begins`: the log begins at `staged`, and has no earlier changes. `keyless`:
    captured tables whose rows have no key; `partly_known`: those of which the log never had all rows; `elsewhere`: the
    source is another cluster, whose oids may differ. `sessions`: slots of clients' sessions, which end. `upgraded`: the
    user says that pg_upgrade kept the slot, so that nothing is missing.
    """

    database: str
    reasons: Sequence[str]
    staged: int
    bytes: int | None
    newest: datetime | None
    begins: bool = False
    keyless: Sequence[str] = ()
    partly_known: Sequence[str] = ()
    elsewhere: bool = False
    sessions: Sequence[str] = ()
    upgraded: bool = False


GapConsent = Callable[[HistoryGap], None]
"""Shows an operator the gap before anything is changed; raises PipelineError if the operator declines."""


def read_gap(
    connection: Connection,
    table: EventsTable,
    stored: ReplicationSource,
    staged: int,
    identity: SystemIdentity,
    reasons: Sequence[str],
    sessions: Sequence[str],
    *,
    upgraded: bool = False,
) -> HistoryGap:
    """Read the gap at the source as it is now. Changes nothing."""
    same = (identity.system_identifier, identity.timeline) == (stored.system_identifier, stored.timeline)
    missing = max(0, identity.flushed - staged) if same else None
    elsewhere = identity.system_identifier != stored.system_identifier
    newest = recent_transactions.newest(connection, table)
    return HistoryGap(
        identity.database,
        reasons,
        staged,
        missing,
        newest,
        keyless=known_tables.keyless(connection, stored),
        partly_known=comparing.partly_known(connection, stored),
        elsewhere=elsewhere,
        sessions=sessions,
        upgraded=upgraded,
    )
