"""Answers that many clients ask for again and again: read from the databases once in 2 s, and sent to all of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from pydantic import BaseModel

from pipeline.config.settings import Config
from pipeline.errors import DatabaseUnavailableError
from pipeline.postgres.connections import Connection
from pipeline.postgres.kept_connection import CheckConnections, KeptConnection
from pipeline.process.shared_check import SharedCheck
from pipeline.terminal.json_values import as_json

SHARED_SECONDS = 2.0
"""Seconds for which all clients get the same answer."""
CONNECT_SECONDS = 2.0
"""Seconds in which a database must accept a connection, and show that an open one is alive."""
ANSWER_SECONDS = 10.0
"""Seconds in which a request is answered, even if a database hangs."""
MOST_LISTS = 50
"""The most lists that are kept. Another `limit` makes another list."""


class SharedReads:
    """Reads the answers, one after the other in one thread, over connections that stay open while clients ask."""

    def __init__(self, config: Config) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="shared reads")
        self._kept = [
            KeptConnection(dsn, what, name="pipeline api reads", seconds=CONNECT_SECONDS)
            for dsn, what in ((config.database, "pipeline database"), (config.source, "source"))
        ]
        self._opened = CheckConnections(*(each.answering for each in self._kept))
        self._lists: dict[str, SharedBody] = {}

    def close(self) -> None:
        """Close the connections, and begin no more readings."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        for each in self._kept:
            each.close()

    def body(self, read: Callable[[CheckConnections], bytes]) -> SharedBody:
        """Share what `read` returns."""
        return SharedBody(SharedCheck(lambda: read(self._opened), SHARED_SECONDS, self._executor, ANSWER_SECONDS))

    def answer(self, read: Callable[[CheckConnections], Any]) -> SharedBody:
        """Share what `read` returns, a value for `as_json`, as JSON."""
        return self.body(lambda opened: json.dumps(as_json(read(opened))).encode())

    async def answer_list(self, name: str, model: type[BaseModel], read: Callable[[Connection], Any]) -> Response:
        """Return the answer with the list of this name: `read` returns the items, and `model` has them as `data`."""

        def body(opened: CheckConnections) -> bytes:
            with opened.pipeline(ANSWER_SECONDS) as pipeline:
                return model.model_validate({"data": as_json(read(pipeline))}).model_dump_json(by_alias=True).encode()

        if name not in self._lists and len(self._lists) >= MOST_LISTS:
            self._lists.clear()
        shared = self._lists.setdefault(name, self.body(body))
        return json_response(await shared.read())

    def forget_lists(self) -> None:
        """Read each list again for the next client, because an action has changed something."""
        self._lists.clear()


class SharedBody:
    """The body of an answer, which is read once for all clients that ask within SHARED_SECONDS."""

    def __init__(self, check: SharedCheck[bytes]) -> None:
        self._check = check

    async def read(self, patience: float | None = None) -> bytes:
        """Return the body, or the one before if a reading takes longer than `patience` seconds.

        Raises DatabaseUnavailableError after ANSWER_SECONDS.
        """
        try:
            return await self._check.result(patience)
        except TimeoutError:
            raise DatabaseUnavailableError(
                f"the databases did not answer within {ANSWER_SECONDS:g} s; try again later"
            ) from None


def json_response(body: bytes) -> Response:
    """Return an answer with this JSON."""
    return Response(body, media_type="application/json")


async def _reads(request: Request) -> SharedReads:
    found: SharedReads = request.app.state.reads
    return found


TheReads = Annotated[SharedReads, Depends(_reads)]
