"""Runs the role's server, the asyncio server of grpcio, at one address until it is asked to stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import grpc
from grpc_reflection.v1alpha import reflection

from pipeline.api import access
from pipeline.config.settings import Config
from pipeline.consumers.cursor.leases import CursorLeases
from pipeline.log.wakeups import WakeupListener
from pipeline.postgres.pool import Pool
from pipeline.process import open_files, supervised
from pipeline.process.signals import StopSignal, in_loop
from pipeline.rpc import health
from pipeline.rpc.health import HealthService
from pipeline.rpc.presence import RolePresence
from pipeline.rpc.service import GrpcResources, GrpcService, RoleServices

logger = logging.getLogger(__name__)

MAX_STREAMS = 1_000
"""The most calls at once on one connection; further calls of the client wait until one ends."""
MAX_REQUEST = 1_000_000
"""The most bytes of a client's message."""
AGAIN_SECONDS = 2.0
"""Seconds between two attempts at a port that is taken."""
_LEAVE_SECONDS = 1.0
_OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.so_reuseport", 0),  # otherwise two servers would share a port without an error
    ("grpc.max_concurrent_streams", MAX_STREAMS),
    ("grpc.max_receive_message_length", MAX_REQUEST),
    ("grpc.max_send_message_length", -1),
    # Clients ping as often as they like, idle or not: by default the fifth ping within 5 minutes is GOAWAY.
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    # A connection to a machine that is silent for a minute is closed.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 40_000),
    ("grpc.http2.max_pings_without_data", 0),
)
MOST_CONNECTIONS = 5_000
"""The most connections at a time, if open files allow it. With a low limit, silent clients could keep out others."""
HANDSHAKE_SECONDS = 10.0
"""Seconds that a client has for its first bytes and for TLS."""
IDLE_SECONDS = 30.0
"""Seconds after which a connection without a call is closed; grpcio takes one to two times as long."""
Continuation = Callable[[grpc.HandlerCallDetails], Awaitable["grpc.RpcMethodHandler[Any, Any] | None"]]
_TOKEN_NEEDED = "this call needs the metadata authorization: Bearer with PIPELINE_API_TOKEN"  # noqa: S105  a sentence


def run(config: Config, server: str, served: RoleServices, stop: StopSignal) -> None:
    """Serve until asked to stop. While another process has the port, the role waits for it and logs that."""
    asyncio.run(_serve(config, server, served, stop))


async def _serve(config: Config, server: str, served: RoleServices, stop: StopSignal) -> None:
    asyncio.get_running_loop().set_exception_handler(_ignore_disconnects)
    leaving = asyncio.Event()
    stop.then(in_loop(leaving.set))
    presence = RolePresence(config, server)
    async with _open_resources(config, server) as resources:
        services = served.create(resources)
        names = tuple(service.name for service in services)
        services.append(HealthService(served.is_ready, names))
        with presence.kept():
            listening = await _listening(config, services, CallGuard(config, served.wires), leaving, presence)
            if listening is not None:
                await listening.start()
                presence.report("running")
                logger.info("serving %s", ", ".join(names), extra={"action": "grpc.serving"})
                await leaving.wait()
                resources.wakeups.close()
                await asyncio.gather(*(service.close() for service in services))
                await listening.stop(_LEAVE_SECONDS)


def _ignore_disconnects(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Ignore errors of grpcio's own tasks for clients that have disconnected; no code awaits these tasks."""
    if not isinstance(context.get("exception"), grpc.aio.InternalError):
        loop.default_exception_handler(context)


@asynccontextmanager
async def _open_resources(config: Config, server: str) -> AsyncIterator[GrpcResources]:
    """Open the pool and the LISTEN connection, which connect as soon as the pipeline database answers."""
    database = Pool(config.database, "pipeline grpc")
    wakeups = WakeupListener(config.database, config.events_table, config.grpc_port)
    await database.open()
    cursors = CursorLeases(config.database, database.transaction)
    hearing = supervised.start_task("wakeups", wakeups.run)
    try:
        yield GrpcResources(config, database, wakeups, cursors, server)
    finally:
        hearing.cancel()
        with suppress(asyncio.CancelledError):
            await hearing
        await cursors.close()
        await database.close()


async def _listening(
    config: Config, services: Sequence[GrpcService], guard: CallGuard, leaving: asyncio.Event, presence: RolePresence
) -> grpc.aio.Server | None:
    """Return a server that has the port; None if the role is asked to stop first."""
    has_warned = False
    while not leaving.is_set():
        server = grpc.aio.server(interceptors=[guard], options=[*_OPTIONS, *_bounds()])
        server.add_generic_rpc_handlers(tuple(service.handlers for service in services))
        reflection.enable_server_reflection([*(service.name for service in services), reflection.SERVICE_NAME], server)
        if _bind(server, config):
            return server
        if not has_warned:
            taken = f"port {config.grpc_port} is taken; stop what uses it, or choose another PIPELINE_GRPC_PORT"
            logger.warning("gRPC is not served: %s", taken, extra={"action": "grpc.port_taken"})
            presence.report("waiting", taken)
        has_warned = True
        with suppress(TimeoutError):
            async with asyncio.timeout(AGAIN_SECONDS):
                await leaving.wait()
    return None


def _bounds() -> list[tuple[str, int]]:
    """Return options that limit the resources that clients without a token can hold."""
    return [
        ("grpc.max_allowed_incoming_connections", open_files.raise_limit(MOST_CONNECTIONS)),
        ("grpc.server_handshake_timeout_ms", round(HANDSHAKE_SECONDS * 1_000)),
        ("grpc.max_connection_idle_ms", round(IDLE_SECONDS * 1_000)),
    ]


def _bind(server: grpc.aio.Server, config: Config) -> bool:
    host = f"[{config.http_host}]" if ":" in config.http_host else config.http_host
    address = f"{host}:{config.grpc_port}"
    try:
        if config.http_certificate is None or config.http_key is None:
            bound = server.add_insecure_port(address)
        else:
            pair = (Path(config.http_key).read_bytes(), Path(config.http_certificate).read_bytes())
            bound = server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
    except RuntimeError:  # grpcio: "Failed to bind to address"
        return False
    return bound != 0


class CallGuard(grpc.aio.ServerInterceptor):
    """Refuses calls without the token, and calls of wire protocols that the settings do not enable."""

    def __init__(self, config: Config, wires: Mapping[str, str]) -> None:
        """`wires`: the services for clients of other systems, with the names that PIPELINE_WIRES has for them."""
        self._config = config
        self._wires = wires

    async def intercept_service(
        self, continuation: Continuation, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Return the handler of an allowed call, else one that refuses it."""
        service = handler_call_details.method.lstrip("/").rpartition("/")[0]
        wire = self._wires.get(service)
        if wire is not None and wire not in self._config.wires:
            sentence = f"{service} is not served: add {wire} to PIPELINE_WIRES"
            return _refusing(grpc.StatusCode.UNIMPLEMENTED, sentence)
        is_open = service == health.NAME or wire in self._config.open_wires
        if not is_open and not access.is_token_valid(_given_token(handler_call_details), self._config):
            return _refusing(grpc.StatusCode.UNAUTHENTICATED, _TOKEN_NEEDED)
        return await continuation(handler_call_details)


def _given_token(details: grpc.HandlerCallDetails) -> str | None:
    for name, value in details.invocation_metadata or ():
        scheme, _, token = (value if isinstance(value, str) else "").partition(" ")
        if name == "authorization" and scheme.lower() == "bearer":
            return token.strip()
    return None


def _refusing(status: grpc.StatusCode, sentence: str) -> grpc.RpcMethodHandler[Any, Any]:
    """Return a handler that refuses every kind of call, without waiting for a message of the client."""

    async def refuse(_requests: object, context: grpc.aio.ServicerContext[Any, Any]) -> NoReturn:
        await context.abort(status, sentence)
        raise AssertionError("abort raises")

    return grpc.stream_stream_rpc_method_handler(refuse)
