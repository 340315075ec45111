"""Who looks at the shop's pages, and what happens meanwhile: the workload of `pipeline demo --followers`."""

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
    """What happens when this share of the time has passed, and what is said of it."""

    share: float
    text: str
    happen: Callable[[], object]


def create(source: Connection) -> None:
    """The table, with visits from before; after the shop's."""
    source.execute(statement("demo", "create_visits"))


class ShopVisitors(threading.Thread):
    """Come until they are asked to stop. `failure`: what went wrong, if anything."""

    def __init__(self, dsn: str, stop: threading.Event) -> None:
        super().__init__(name="visitors", daemon=True)
        self.failure: str | None = None
        self._connection = connections.connect(dsn, "source", name="demo visitors")
        self._stopping = stop

    def run(self) -> None:
        """Some at a time."""
        number = 0
        try:
            while not self._stopping.wait(_PAUSE):
                number += 1
                self._connection.execute(statement("demo", "insert_visits"), {"number": number})
        except psycopg.Error as error:
            self.failure = connections.one_line(error)
        finally:
            self._connection.close()
