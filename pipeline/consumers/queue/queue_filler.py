"""Fills the queues of records consumers while the shuffler does not move events, if it is their turn."""

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
    """Adds events of the log to the queues of consumers, on the shuffler's own session.

    `default`: the events table of consumers that name none.
    """

    def __init__(self, connection: Connection, source: uuid.UUID, default: EventsTable) -> None:
        self._connection, self._source, self._default = connection, source, default
        self._queues: list[RecordsConsumer] = []
        self._pace = QueuePace(self._measure_lag)
        self._odd = set[int]()

    def fill(self, left: float | None, first: Callable[[], bool]) -> bool:
        """Call `first` and add to queues, if it is their turn; return True if there was something to do.

        `left`: seconds until the next move; None if there is nothing to move. `first` returns True if it did something.
        """
        if (turn := self._pace.begin_turn(left, has_queues=bool(self._queues))) is None:
            return False
        did_first = first()
        self._queues = consumers.list_consumers(self._connection)
        result = queue_apply.catch_up(
            self._connection, self._source, self._default, self._queues, turn.within, self._odd
        )
        self._pace.end_turn(turn, result, did_other=did_first)
        return did_first or bool(result)

    @property
    def rest(self) -> float | None:
        """Seconds until the next turn if queues wait for the log to catch up; None if they do not."""
        return self._pace.rest

    def _measure_lag(self) -> int:
        query = statement("consumers.queue", "log_lag")
        return int(queries.value(self._connection, query, {"source": self._source}, default=0))
