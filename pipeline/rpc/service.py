"""What a service of the role is, and what it is served with."""

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
    """What a service is served with. `server`: this server's name, unique among those on one pipeline database."""

    config: Config
    database: Pool
    wakeups: WakeupListener
    cursors: CursorLeases
    server: str


class GrpcService(Protocol):
    """A service while it is served."""

    @property
    def name(self) -> str:
        """Its full name, with which the paths of its calls begin."""

    @property
    def handlers(self) -> grpc.GenericRpcHandler:
        """Its calls."""

    async def close(self) -> None:
        """End every call with UNAVAILABLE, within a second; what is called from then on ends so at once."""


@dataclass(frozen=True)
class RoleServices:
    """What the role serves beside health.

    `services`: those that the settings serve. `wires`: services that other systems' clients speak, and the names that
    settings have for them. `is_ready` judges this server, or with False whether it can read the log.
    """

    create: Callable[[GrpcResources], list[GrpcService]]
    wires: Mapping[str, str]
    is_ready: Callable[[bool], bool]
