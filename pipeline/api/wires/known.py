"""All wires over HTTP, by the names that settings have."""

from __future__ import annotations

from pipeline.api.wires.wire import Served, Wire
from pipeline.config.settings import Config

WIRES: dict[str, Wire] = {}


def served(config: Config) -> Served:
    """Those of PIPELINE_WIRES."""
    return Served([WIRES[name] for name in config.wires if name in WIRES], config.open_wires)
