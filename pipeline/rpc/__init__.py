"""The role grpc: serves the log over gRPC, by its own protocol and by walstream's."""

from __future__ import annotations
