"""The interface of the role's services, and the resources that they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import grpc

from pipeline.config.settings import Config
from pipeline.consumers.cursor.leases import CursorLeases
from pipeline.log.wakeups import WakeupListener
from pipeline.postgres.pool import Pool


@dataclass(frozen=True)
class GrpcResources:
    """Resources that services share. `server`: this server's name, unique among those on one pipeline database."""

    config: Config
    database: Pool
    wakeups: WakeupListener
    cursors: CursorLeases
    server: str


class GrpcService(Protocol):
    """A gRPC service that a running server offers."""

    @property
    def name(self) -> str:
        """The full name of the service, with which the paths of its calls begin."""

    @property
    def handlers(self) -> grpc.GenericRpcHandler:
        """The handlers of this service's calls."""

    async def close(self) -> None:
        """End every call with UNAVAILABLE, within a second; later calls get UNAVAILABLE at once."""


@dataclass(frozen=True)
class RoleServices:
    """The services of the role, without the health service.

    `create` makes the services that the settings serve. `wires`: the services for clients of other systems,
    with the names that PIPELINE_WIRES has for them. `is_ready(True)` returns True if this whole server is ready,
    `is_ready(False)` if this role can read the log.
    """

    create: Callable[[GrpcResources], list[GrpcService]]
    wires: Mapping[str, str]
    is_ready: Callable[[bool], bool]
