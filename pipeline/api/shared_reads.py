"""Answers that many clients ask for again and again: read from the databases once in 2 s, and sent to all of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastapi import Response

from pipeline.config.settings import Config
from pipeline.errors import DatabaseUnavailableError
from pipeline.postgres.kept_connection import CheckConnections, KeptConnection
from pipeline.process.shared_check import SharedCheck
from pipeline.terminal.json_values import as_json

SHARED_SECONDS = 2.0
"""Seconds for which all clients get the same answer."""
CONNECT_SECONDS = 2.0
"""Seconds in which a database must accept a connection, and show that an open one is alive."""
ANSWER_SECONDS = 10.0
"""Seconds in which a request is answered, even if a database hangs."""


class SharedReads:
    """Reads the answers, one after the other in one thread, over connections that stay open while clients ask."""

    def __init__(self, config: Config) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="shared reads")
        self._kept = [
            KeptConnection(dsn, what, name="pipeline api reads", seconds=CONNECT_SECONDS)
            for dsn, what in ((config.database, "pipeline database"), (config.source, "source"))
        ]
        self._opened = CheckConnections(*(each.answering for each in self._kept))

    def close(self) -> None:
        """Close the connections, and begin no more readings."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        for each in self._kept:
            each.close()

    def body(self, read: Callable[[CheckConnections], bytes]) -> SharedBody:
        """Share what `read` returns."""
        return SharedBody(SharedCheck(lambda: read(self._opened), SHARED_SECONDS, self._executor))

    def answer(self, read: Callable[[CheckConnections], Any]) -> SharedBody:
        """Share what `read` returns, a value for `as_json`, as JSON."""
        return self.body(lambda opened: json.dumps(as_json(read(opened))).encode())


class SharedBody:
    """The body of an answer, which is read once for all clients that ask within SHARED_SECONDS."""

    def __init__(self, check: SharedCheck[bytes]) -> None:
        self._check = check

    async def read(self) -> bytes:
        """Return the body. Raises DatabaseUnavailableError after ANSWER_SECONDS."""
        try:
            return await asyncio.wait_for(self._check.result(), ANSWER_SECONDS)
        except TimeoutError:
            raise DatabaseUnavailableError(
                f"the databases did not answer within {ANSWER_SECONDS:g} s; try again later"
            ) from None


def json_response(body: bytes) -> Response:
    """Return an answer with this JSON."""
    return Response(body, media_type="application/json")
