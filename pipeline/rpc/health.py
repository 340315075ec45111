"""grpc.health.v1: "" has the state of `/readyz`; each service is SERVING while this process can read the log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import grpc
from grpc.aio import EOF
from grpc_health.v1 import health_pb2

from pipeline.errors import DatabaseUnavailableError, PipelineError
from pipeline.process.signals import in_thread
from pipeline.rpc import statuses
from pipeline.rpc.calls import until_one_ends
from pipeline.rpc.parsing import parser, require

NAME = "grpc.health.v1.Health"
CHECK_SECONDS = 2.0
"""The most seconds for which an answer is reused, and the seconds between two checks for clients of Watch."""
MESSAGE_SECONDS = 10.0
"""Seconds that a call waits for its message. The time is short because this service needs no token."""
MOST_CALLS = 1_000
"""The most calls of this service at a time; each needs 8 kB. If there are more, the oldest call is ended."""
_TOO_MANY = "too many clients call the health service at once; call again"

_Status = health_pb2.HealthCheckResponse
_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
_Answer: TypeAlias = "Callable[[_Context], Coroutine[Any, Any, None]]"


class HealthService:
    """The service grpc.health.v1.Health. For an unknown service: NOT_FOUND from Check, SERVICE_UNKNOWN from Watch."""

    name = NAME

    def __init__(self, judge: Callable[[bool], bool], services: tuple[str, ...]) -> None:
        """`judge(whole)` returns True if this server, or else this role of it, is ready; it may block for seconds."""
        self._judge = judge
        self._services = services
        self._answers: dict[bool, tuple[float, bool]] = {}
        self._locks = {whole: asyncio.Lock() for whole in (True, False)}
        self._leaving = asyncio.Event()
        self._calls: dict[asyncio.Future[PipelineError], None] = {}

    @property
    def handlers(self) -> grpc.GenericRpcHandler:
        """The handlers of Check and Watch.

        Both are declared as streams, because grpcio would wait forever for the single message of another call.
        """

        def handler(answer: _Answer) -> grpc.RpcMethodHandler[Any, Any]:
            request = parser(health_pb2.HealthCheckRequest.FromString)
            return grpc.stream_stream_rpc_method_handler(
                partial(self._keep, answer), request, _Status.SerializeToString
            )

        answers = {"Check": handler(self._check), "Watch": handler(self._watch)}
        return grpc.method_handlers_generic_handler(NAME, answers)

    async def close(self) -> None:
        """Report NOT_SERVING from now on; running calls of Watch get this status and end."""
        self._leaving.set()

    async def _keep(self, answer: _Answer, _requests: object, context: _Context) -> None:
        """Answer a call; end it without an answer if a new call needs its place."""
        ended: asyncio.Future[PipelineError] = asyncio.get_running_loop().create_future()
        if len(self._calls) >= MOST_CALLS:
            oldest = next(iter(self._calls))
            del self._calls[oldest]
            oldest.set_result(DatabaseUnavailableError(_TOO_MANY))
        self._calls[ended] = None
        try:
            await until_one_ends(ended, answer(context))
        except DatabaseUnavailableError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        finally:
            self._calls.pop(ended, None)

    async def _check(self, context: _Context) -> None:
        service = await _service(context)
        status = await self._status(service)
        if status == _Status.SERVICE_UNKNOWN:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no service {service[:100]!r} here")
        await context.write(_Status(status=status))

    async def _watch(self, context: _Context) -> None:
        service, reported = await _service(context), None
        while True:
            leaving = self._leaving.is_set()  # it may be set while a message is on its way
            status = await self._status(service)
            if status != reported:
                reported = status
                await context.write(_Status(status=status))
            if leaving:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_SECONDS):
                    await self._leaving.wait()

    async def _status(self, service: str) -> int:
        if service not in ("", NAME, *self._services):
            return int(_Status.SERVICE_UNKNOWN)
        serving = not self._leaving.is_set() and await self._serves(whole=service == "")
        return int(_Status.SERVING if serving else _Status.NOT_SERVING)

    async def _serves(self, *, whole: bool) -> bool:
        async with self._locks[whole]:
            at, found = self._answers.get(whole, (float("-inf"), False))
            if time.monotonic() - at > CHECK_SECONDS:
                found = await in_thread(self._judge, whole)
                self._answers[whole] = time.monotonic(), found
            return found


async def _service(context: _Context) -> str:
    """Return the name of the service about which the call asks."""
    try:
        async with asyncio.timeout(MESSAGE_SECONDS):
            request = await context.read()
    except TimeoutError:
        sentence = f"the call's message did not come within {MESSAGE_SECONDS:g} s"
        await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, sentence)
    try:
        return str(require(None if request is EOF else request).service)
    except PipelineError as error:
        await statuses.abort(context, error)
