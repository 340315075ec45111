"""All wires over HTTP, by the names that settings have."""

from __future__ import annotations

from pipeline.api.wire import Served
from pipeline.config.settings import Config
from pipeline.wires import pgdeltastream, sequin

WIRES = {wire.name: wire for wire in (pgdeltastream.WIRE, sequin.WIRE)}


def served(config: Config) -> Served:
    """Those of PIPELINE_WIRES."""
    return Served([WIRES[name] for name in config.wires if name in WIRES], config.open_wires)
