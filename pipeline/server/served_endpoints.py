"""The list of what is served: HTTP endpoints, wires of other systems, and gRPC services."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.api import app, events
from pipeline.api.app import ApplicationParts
from pipeline.api.console import endpoints as console
from pipeline.api.shared_reads import SharedReads
from pipeline.api.wire import ServedWires, WireResources
from pipeline.config.settings import Config
from pipeline.consumers import endpoints as consumers
from pipeline.consumers.cursor import websocket
from pipeline.consumers.cursor.leases import CursorLeases
from pipeline.exports import endpoints as exports
from pipeline.followers.operating import endpoints as followers
from pipeline.log.wakeups import WakeupListener
from pipeline.operate import dead_letter_endpoints, readiness, status_endpoints
from pipeline.operate import endpoints as operate
from pipeline.operate.status_reader import SharedStatus
from pipeline.postgres.pool import Pool
from pipeline.process.signals import StopSignal
from pipeline.snapshots import endpoints as backfills
from pipeline.wires.pgdeltastream import endpoints as pgdeltastream
from pipeline.wires.sequin import endpoints as sequin

if TYPE_CHECKING:
    from pipeline.rpc.service import GrpcResources, GrpcService, RoleServices

WIRES = {wire.name: wire for wire in (pgdeltastream.WIRE, sequin.WIRE)}
"""Wires over HTTP, by their names in the settings."""


def serve_http(config: Config, server: str, stop: StopSignal) -> None:
    """Run the role `api`. `server`: this server's name, unique among those on one pipeline database."""
    app.run(parts(config, server), stop)


def parts(config: Config, server: str) -> ApplicationParts:
    """Return all endpoints, with the wires of PIPELINE_WIRES."""
    database = Pool(config.database, "pipeline api")
    wakeups = WakeupListener(config.database, config.events_table, config.http_port)
    cursors = CursorLeases(config.database, database.transaction)
    resources = WireResources(config, database, wakeups, server)
    wires = ServedWires([WIRES[name] for name in config.wires if name in WIRES], config.open_wires)
    reads, shared = SharedReads(config), SharedStatus(config)
    routers = (
        console.router,
        operate.router(config, server, reads, shared),
        status_endpoints.router(config, server, reads, shared),
        dead_letter_endpoints.router,
        exports.router(config, reads),
        consumers.router,
        backfills.router,
        followers.router,
        events.router,
        websocket.router(config, database, wakeups, cursors, server),
    )

    async def close() -> None:
        reads.close()
        await cursors.close()

    return ApplicationParts(resources, reads, routers, wires, [wire.serve(resources) for wire in wires.wires], close)


def serve_grpc(config: Config, server: str, stop: StopSignal) -> None:
    """Run the role `grpc`."""
    from pipeline.rpc import server as rpc  # here, so that no other role loads grpcio

    rpc.run(config, server, grpc_services(config, server), stop)


def grpc_services(config: Config, server: str) -> RoleServices:
    """Return all gRPC services, with walstream's if PIPELINE_WIRES has it."""
    from pipeline.rpc.event_log.service import EventLogService
    from pipeline.rpc.service import RoleServices
    from pipeline.rpc.tables import ReadableTables
    from pipeline.wires.walstream.service import PluginService

    wires = {PluginService.name: "walstream"}

    def services(resources: GrpcResources) -> list[GrpcService]:
        tables = ReadableTables(resources)
        served: list[GrpcService] = [EventLogService(resources, tables)]
        if wires[PluginService.name] in config.wires:
            served.append(PluginService(resources, tables.get(config.events_table).feed))
        return served

    def is_ready(whole: bool) -> bool:
        return not readiness.check_readiness(config, server, None if whole else "api").reasons

    return RoleServices(services, wires, is_ready)
