"""All services of the role but health; and which of them other systems' clients speak."""

from __future__ import annotations

from pipeline.rpc.event_log.service import EventLog
from pipeline.rpc.service import Service, Surroundings
from pipeline.rpc.tables import Tables
from pipeline.wires.walstream.service import PluginService

WIRES = {PluginService.name: "walstream"}
"""Services that other systems' clients speak, by their full names; the values are the names that settings have."""


def services(surroundings: Surroundings) -> list[Service]:
    """Those that these settings serve."""
    tables = Tables(surroundings)
    served: list[Service] = [EventLog(surroundings, tables)]
    if WIRES[PluginService.name] in surroundings.config.wires:
        served.append(PluginService(surroundings, tables.get(surroundings.config.events_table).feed))
    return served
