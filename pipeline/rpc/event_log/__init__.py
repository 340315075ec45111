"""pipeline.v1.EventLog: the log for programs that want it over gRPC."""

from __future__ import annotations
