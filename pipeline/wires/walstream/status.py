"""The wire of walstream: who is connected, and who holds the position that all share."""

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
    nothing up to there. `ended_at`: it has ended, and keeps the position there for `hold_seconds` more; None: for a
    minute. `connected`: it is there; if neither, its server was killed, and the next one begins that minute.
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
class Walstream:
    """`served`: whether these settings serve the wire. `shortened`: events that went out without some values."""

    served: bool
    shortened: int = 0
    sessions: Sequence[WalstreamSession] = field(default_factory=list)


def read(config: Config, connection: Connection) -> Walstream:
    """The sessions, oldest first."""
    counted = "select count from pipeline.wire_counters where (wire, name) = ('walstream', 'shortened')"
    return Walstream(
        "walstream" in config.wires,
        queries.value(connection, counted, default=0),
        queries.rows(connection, WalstreamSession, statement("wires.walstream", "walstream_sessions")),
    )
