"""The endpoints of Sequin's HTTP pull consumers: receive, ack, nack. Each request is one transaction."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from typing import LiteralString
from uuid import UUID

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from psycopg.conninfo import conninfo_to_dict
from starlette.exceptions import HTTPException

from pipeline.api.long_poll import WaitingClient, until_found
from pipeline.api.patterns import NAME
from pipeline.api.wire import ErrorAnswer, WirePath, WireProtocol, WireResources
from pipeline.errors import UnknownConsumerError
from pipeline.postgres.connections import AsyncConnection
from pipeline.postgres.pool import rows
from pipeline.postgres.queries import statement
from pipeline.wires.sequin import request_parameters
from pipeline.wires.sequin.items import DeliveredItem, ItemReceiver
from pipeline.wires.sequin.message import SequinMessages, consumer_id
from pipeline.wires.sequin.request_parameters import ParameterError, Parameters, ReceiveParameters

NOT_FOUND = "Not found: No `consumer` found matching the provided ID or name"

_PREFIXES = ("/api/http_pull_consumers", "/api/sequin_streams")
RECEIVE, ACK, NACK = ("/{id_or_name}/receive", "/{id_or_name}/ack", "/{id_or_name}/nack")
PATHS = tuple(prefix + path for prefix in _PREFIXES for path in (RECEIVE, ACK, NACK))
_ACK_ITEMS = "select pipeline.ack(%(name)s::text, %(ack_ids)s::uuid[])"
"""Acknowledge deliveries."""
_LIST_NAMES = "select c.name from pipeline.consumers c"
"""The names of all consumers."""
_LIST_SOURCES = "select s.id, s.database_name from pipeline.sources s"
"""All sources that the log has events of."""
_NACK_ITEMS = "select pipeline.nack(%(name)s::text, %(ack_ids)s::uuid[], interval '0')"
"""Refuse deliveries: their items are available again at once."""


class SequinService:
    """The endpoints of this wire. Requests share only facts that never change."""

    def __init__(self, resources: WireResources) -> None:
        self._database = resources.database
        self._wakeups = resources.wakeups
        self._hostname = _hostname(resources.config.source)
        self._items = ItemReceiver()
        self._databases: dict[UUID, str] = {}
        self._messages: dict[str, SequinMessages] = {}
        self.routes = APIRouter(include_in_schema=False)
        for prefix in _PREFIXES:
            self.routes.add_route(prefix + RECEIVE, self._receive, methods=["GET", "POST"], include_in_schema=False)
            self.routes.add_route(prefix + ACK, self._ack, methods=["POST"], include_in_schema=False)
            self.routes.add_route(prefix + NACK, self._nack, methods=["POST"], include_in_schema=False)

    async def close(self) -> None:
        """Do nothing: waiting clients get their answer when the server's wakeups close."""

    async def _receive(self, request: Request) -> Response:
        if request.method == "HEAD":  # the route accepts HEAD with GET, but its answer has no items
            raise HTTPException(405, headers={"Allow": "GET, POST"})
        try:
            wanted = request_parameters.receive(await _parameters(request))
        except ParameterError as error:
            return _error_answer(ErrorAnswer(400, str(error)))
        name = await self._name(request)
        with self._wakeups.for_consumer(name) as subscription:

            async def receive(client: WaitingClient) -> list[str] | None:
                return await self._hand_out(client, name, wanted)

            async def due() -> float | None:
                return await self._due(name)

            found = await until_found(request, subscription, wanted.wait, receive, due)
        return _messages_answer(found or [])

    async def _ack(self, request: Request) -> Response:
        return await self._settle(request, _ACK_ITEMS)

    async def _nack(self, request: Request) -> Response:
        return await self._settle(request, _NACK_ITEMS)

    async def _settle(self, request: Request, query: LiteralString) -> Response:
        """Acknowledge or refuse deliveries. Unknown ids, and those of ended deliveries, are ignored."""
        try:
            ids = request_parameters.ack_ids(await _parameters(request))
        except ParameterError as error:
            return _error_answer(ErrorAnswer(400, str(error)))
        await self._database.rows(query, {"name": await self._name(request), "ack_ids": ids})
        return _success()

    async def _hand_out(self, client: WaitingClient, name: str, wanted: ReceiveParameters) -> list[str] | None:
        """Receive items as messages. If the client has gone, or after any error, their delivery is rolled back.

        The delivery is not durable: after a crash of the database they may be delivered again.
        """
        async with self._database.transaction(durable=False) as connection:
            found = await self._items.receive(connection, name, wanted.most)
            await self._learn_sources(connection, {each.source_id for each in found})
            texts = self._texts(name, found) or None
            client.require_connected()
        return texts

    def _texts(self, name: str, found: Sequence[DeliveredItem]) -> list[str]:
        messages = self._messages.get(name)
        if messages is None:
            messages = self._messages[name] = SequinMessages(name, self._databases, self._hostname)
        return [messages.text(each) for each in found]

    async def _due(self, name: str) -> float | None:
        seconds: float | None = (await self._database.rows(statement("consumers", "next_visible"), {"name": name}))[0][
            "seconds"
        ]
        return seconds

    async def _name(self, request: Request) -> str:
        """Return the name of the consumer with that name, or else with that id.

        Raises UnknownConsumerError if no consumer can have it.
        """
        id_or_name: str = request.path_params["id_or_name"]
        if not re.fullmatch(NAME, id_or_name):
            raise UnknownConsumerError("no consumer has such a name")
        if not request_parameters.is_uuid(id_or_name):
            return id_or_name
        async with self._database.transaction() as connection:
            names = [row["name"] for row in await rows(connection, _LIST_NAMES)]
            if id_or_name in names:
                return id_or_name
            await self._learn_sources(connection)
        wanted = UUID(id_or_name)
        found = (name for name in names for source in self._databases if consumer_id(source, name) == wanted)
        return next(found, id_or_name)

    async def _learn_sources(self, connection: AsyncConnection, wanted: Set[UUID] | None = None) -> None:
        """Read the names of sources' databases, of all sources by default. The name of an unknown source is empty."""
        if wanted is not None and wanted <= self._databases.keys():
            return
        for row in await rows(connection, _LIST_SOURCES):
            self._databases[row["id"]] = row["database_name"]
        for source_id in wanted or ():
            self._databases.setdefault(source_id, "")


async def _parameters(request: Request) -> Parameters:
    """Return the parameters of a request. Raises ParameterError."""
    return request_parameters.parameters(
        request.query_params,
        request.headers.get("content-type"),
        await request.body(),
        is_post=request.method == "POST",
    )


def _hostname(dsn: str) -> str:
    """Return the host of the source, the first one of several; localhost if it is a directory of sockets."""
    given = conninfo_to_dict(dsn)
    first = str(given.get("host") or given.get("hostaddr") or "").partition(",")[0]
    return first if first and first[0] not in "/@" else "localhost"


def _messages_answer(texts: Sequence[str]) -> Response:
    """Return the answer with these messages, each as JSON."""
    return Response(f'{{"data":[{",".join(texts)}]}}', media_type="application/json")


def _success() -> Response:
    """Return the answer to a request that succeeded."""
    return JSONResponse({"success": True})


def _error_answer(failure: ErrorAnswer) -> Response:
    """Return the answer to a failed request: one sentence."""
    return JSONResponse({"summary": failure.sentence}, failure.status, headers=dict(failure.headers))


def _bad_request(failure: ErrorAnswer) -> Response:
    """Return the answer to any invalid request."""
    return JSONResponse({"summary": failure.sentence}, 400)


def _not_found(_failure: ErrorAnswer) -> Response:
    """Return the answer for a consumer that does not exist."""
    return JSONResponse({"summary": NOT_FOUND}, 404)


def _other_kind(failure: ErrorAnswer) -> Response:
    """Return the answer for a consumer that has no items, because it is of another kind."""
    return JSONResponse({"summary": f"{NOT_FOUND}: {failure.sentence}"}, 404)


WIRE = WireProtocol(
    name="sequin",
    paths=tuple(WirePath(path, get_changes=path.endswith("/receive")) for path in PATHS),
    forms={404: _not_found, 409: _other_kind, 422: _bad_request},
    otherwise=_error_answer,
    serve=SequinService,
    wants_bearer=True,
)
