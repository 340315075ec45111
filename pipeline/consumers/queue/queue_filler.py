"""What the shuffler does between two moves: look for records consumers, and give them their turn."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from pipeline.consumers.queue import consumers, queue_apply
from pipeline.consumers.queue.consumers import RecordsConsumer
from pipeline.consumers.queue.queue_pace import QueuePace
from pipeline.log.table import EventsTable
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement


class QueueFiller:
    """Adds events of the log to the queues of consumers, on the shuffler's own session, while it does not move.

    `default`: the events table of consumers that name none.
    """

    def __init__(self, connection: Connection, source: uuid.UUID, default: EventsTable) -> None:
        self._connection, self._source, self._default = connection, source, default
        self._queues: list[RecordsConsumer] = []
        self._pace = QueuePace(self._log_lag)
        self._odd = set[int]()

    def fill(self, left: float | None, first: Callable[[], bool]) -> bool:
        """Add to queues if it is their turn; returns whether there was something to do.

        `left`: seconds until more is moved; None when there is nothing to move. `first` is called at the begin of a
        turn, and returns whether it did something.
        """
        if (turn := self._pace.turn(left, known=bool(self._queues))) is None:
            return False
        goes_on = first()
        self._queues = consumers.look(self._connection)
        found = queue_apply.catch_up(
            self._connection, self._source, self._default, self._queues, turn.within, self._odd
        )
        self._pace.ended(turn, found, goes_on=goes_on)
        return goes_on or bool(found)

    @property
    def rest(self) -> float | None:
        """Seconds until the next turn where queues wait for the log to catch up; None where they do not."""
        return self._pace.rest

    def _log_lag(self) -> int:
        query = statement("consumers.queue", "log_lag")
        return int(queries.value(self._connection, query, {"source": self._source}, default=0))
