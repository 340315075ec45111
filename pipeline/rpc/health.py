"""grpc.health.v1: "" is as `/readyz` says; each service is there as long as this process can read the log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from pipeline.errors import PipelineError
from pipeline.process.signals import in_thread
from pipeline.rpc import statuses
from pipeline.rpc.parsing import parser, require

NAME = "grpc.health.v1.Health"
LOOK_SECONDS = 2.0
"""How old an answer may be, and how often one who watches is told."""

_Status = health_pb2.HealthCheckResponse


class Health:
    """The service. A service that is unknown: NOT_FOUND, or SERVICE_UNKNOWN to one who watches."""

    name = NAME

    def __init__(self, judge: Callable[[bool], bool], services: tuple[str, ...]) -> None:
        """`judge(whole)` says whether this server is ready as a whole, or this role of it; it may block for seconds."""
        self._judge = judge
        self._services = services
        self._looked: dict[bool, tuple[float, bool]] = {}
        self._looking = asyncio.Lock()
        self._leaving = asyncio.Event()

    @property
    def handlers(self) -> grpc.GenericRpcHandler:
        """Check and Watch."""
        request = parser(health_pb2.HealthCheckRequest.FromString)
        return grpc.method_handlers_generic_handler(
            NAME,
            {
                "Check": grpc.unary_unary_rpc_method_handler(self._check, request, _Status.SerializeToString),
                "Watch": grpc.unary_stream_rpc_method_handler(self._watch, request, _Status.SerializeToString),
            },
        )

    async def close(self) -> None:
        """From now on nothing serves; who watches is told, and their calls end."""
        self._leaving.set()

    async def _check(
        self, request: health_pb2.HealthCheckRequest | None, context: grpc.aio.ServicerContext[Any, Any]
    ) -> health_pb2.HealthCheckResponse:
        service = await _service(request, context)
        status = await self._status(service)
        if status == _Status.SERVICE_UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no service {service[:100]!r} here")
        return _Status(status=status)

    async def _watch(
        self, request: health_pb2.HealthCheckRequest | None, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        service, told = await _service(request, context), None
        while True:
            leaving = self._leaving.is_set()  # it may be set while a message is on its way
            status = await self._status(service)
            if status != told:
                told = status
                yield _Status(status=status)
            if leaving:
                return
            waiting = asyncio.ensure_future(self._leaving.wait())
            await asyncio.wait([waiting], timeout=LOOK_SECONDS)
            waiting.cancel()

    async def _status(self, service: str) -> int:
        if service not in ("", NAME, *self._services):
            return int(_Status.SERVICE_UNKNOWN)
        serving = not self._leaving.is_set() and await self._serves(whole=service == "")
        return int(_Status.SERVING if serving else _Status.NOT_SERVING)

    async def _serves(self, *, whole: bool) -> bool:
        async with self._looking:
            at, found = self._looked.get(whole, (float("-inf"), False))
            if time.monotonic() - at > LOOK_SECONDS:
                found = await in_thread(self._judge, whole)
                self._looked[whole] = time.monotonic(), found
            return found


async def _service(request: health_pb2.HealthCheckRequest | None, context: grpc.aio.ServicerContext[Any, Any]) -> str:
    try:
        return str(require(request).service)
    except PipelineError as error:
        await statuses.abort(context, error)
