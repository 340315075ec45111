"""Reports sessions of walstream's clients: those that are connected, and those that hold the shared position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pipeline.config.settings import Config
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement


@dataclass(frozen=True)
class WalstreamSession:
    """One session, as it was some seconds ago. `sent_seq`: the last event that it was sent; None: none yet.

    `unacknowledged`: the number of events that it was sent and has not acknowledged. `acknowledged_seq`: it needs
    nothing up to there. `ended_at`: when it ended; it keeps the position for `hold_seconds` more, None: for a minute.
    If it is neither `connected` nor ended, its server was killed, and the next server begins that minute.
    """

    peer: str
    server: str
    since: datetime
    sent_seq: int | None
    unacknowledged: int
    acknowledged_seq: int | None
    ended_at: datetime | None
    hold_seconds: float | None
    connected: bool


@dataclass(frozen=True)
class WalstreamStatus:
    """The report of the wire.

    `served`: these settings serve it. `shortened`: the number of events sent without some values.
    """

    served: bool
    shortened: int = 0
    sessions: Sequence[WalstreamSession] = field(default_factory=list)


def read(config: Config, connection: Connection) -> WalstreamStatus:
    """Read the report, with sessions oldest first."""
    counted = "select count from pipeline.wire_counters where (wire, name) = ('walstream', 'shortened')"
    return WalstreamStatus(
        "walstream" in config.wires,
        queries.value(connection, counted, default=0),
        queries.rows(connection, WalstreamSession, statement("wires.walstream", "walstream_sessions")),
    )
