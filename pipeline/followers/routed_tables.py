"""Finds tables whose changes a route sends to another events table than the one that feeds the followers."""

from __future__ import annotations

from pipeline.config.routes import ACTIONS
from pipeline.config.settings import Config


def is_routed(config: Config, schema: str, name: str) -> bool:
    """Return True if some of a table's changes are in another events table."""
    for action in ACTIONS:
        route = next((each for each in config.routes if each.matches(schema, name, action)), None)
        if route is not None and action != "message" and route.events_table != config.events_table:
            return True
    return False
