"""What endpoints depend on: the pool of connections to the pipeline database, and what wakes waiting requests.

A dependency is a coroutine: FastAPI calls any other function in a thread, which takes longer than a page of events.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection

from pipeline.postgres.pool import Pool
from pipeline.readers.wakeups import Wakeups


async def _database(connection: HTTPConnection) -> Pool:
    found: Pool = connection.app.state.database
    return found


async def _wakeups(connection: HTTPConnection) -> Wakeups:
    found: Wakeups = connection.app.state.wakeups
    return found


TheDatabase = Annotated[Pool, Depends(_database)]
TheWakeups = Annotated[Wakeups, Depends(_wakeups)]
