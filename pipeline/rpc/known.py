"""All services of the role but health; and which of them other systems' clients speak."""

from __future__ import annotations

from pipeline.rpc.event_log.service import EventLog
from pipeline.rpc.service import Service, Surroundings
from pipeline.rpc.walstream.service import PluginService

WIRES = {PluginService.name: "walstream"}
"""Services that other systems' clients speak, by their full names; the values are the names that settings have."""


def services(surroundings: Surroundings) -> list[Service]:
    """Those that these settings serve."""
    served: list[Service] = [EventLog(surroundings)]
    if WIRES[PluginService.name] in surroundings.config.wires:
        served.append(PluginService(surroundings))
    return served
