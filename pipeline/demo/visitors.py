"""The workload of `pipeline demo --followers`: visitors of the shop's pages, and incidents such as a crash."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import psycopg

from pipeline.postgres import connections
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

TABLE = "visits"
_PAUSE = 0.02


@dataclass(frozen=True)
class DemoIncident:
    """An incident, its description, and when it happens, as a share of the running time."""

    share: float
    text: str
    happen: Callable[[], object]


def create(source: Connection) -> None:
    """Create the table, with existing visits; the shop's tables come first."""
    source.execute(statement("demo", "create_visits"))


class ShopVisitors(threading.Thread):
    """Visitors, who come until they are asked to stop. `failure`: the error, if any."""

    def __init__(self, dsn: str, stop: threading.Event) -> None:
        super().__init__(name="visitors", daemon=True)
        self.failure: str | None = None
        self._connection = connections.connect(dsn, "source", name="demo visitors")
        self._stopping = stop

    def run(self) -> None:
        """Insert some visits at a time."""
        number = 0
        try:
            while not self._stopping.wait(_PAUSE):
                number += 1
                self._connection.execute(statement("demo", "insert_visits"), {"number": number})
        except psycopg.Error as error:
            self.failure = connections.one_line(error)
        finally:
            self._connection.close()
