"""Checks every call before anything else handles it: the token, and whether its wire is served."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn

import grpc

from pipeline.config import access
from pipeline.config.settings import Config
from pipeline.rpc import health

Continuation = Callable[[grpc.HandlerCallDetails], Awaitable["grpc.RpcMethodHandler[Any, Any] | None"]]
_TOKEN_NEEDED = "this call needs the metadata authorization: Bearer with PIPELINE_API_TOKEN"  # noqa: S105  a sentence


class Guard(grpc.aio.ServerInterceptor):
    """No call that is not allowed gets through."""

    def __init__(self, config: Config, wires: Mapping[str, str]) -> None:
        """`wires`: services that other systems' clients speak, and the names that settings have for them."""
        self._config = config
        self._wires = wires

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """The handler of an allowed call; of another one, a handler that refuses it."""
        service = handler_call_details.method.lstrip("/").rpartition("/")[0]
        wire = self._wires.get(service)
        if wire is not None and wire not in self._config.wires:
            sentence = f"{service} is not served: add {wire} to PIPELINE_WIRES"
            return _refusing(grpc.StatusCode.UNIMPLEMENTED, sentence)
        is_open = service == health.NAME or wire in self._config.open_wires
        if not is_open and not access.is_token_valid(_token(handler_call_details), self._config):
            return _refusing(grpc.StatusCode.UNAUTHENTICATED, _TOKEN_NEEDED)
        return await continuation(handler_call_details)


def _token(details: grpc.HandlerCallDetails) -> str | None:
    for name, value in details.invocation_metadata or ():
        scheme, _, token = (value if isinstance(value, str) else "").partition(" ")
        if name == "authorization" and scheme.lower() == "bearer":
            return token.strip()
    return None


def _refusing(status: grpc.StatusCode, sentence: str) -> grpc.RpcMethodHandler[Any, Any]:
    """For every kind of call: it waits for no message of the client."""

    async def refuse(_requests: object, context: grpc.aio.ServicerContext[Any, Any]) -> NoReturn:
        await context.abort(status, sentence)
        raise AssertionError("abort raises")

    return grpc.stream_stream_rpc_method_handler(refuse)
