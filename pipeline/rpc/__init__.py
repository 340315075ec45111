"""The role grpc: the log over gRPC, for programs of its own protocol and for walstream's clients."""

from __future__ import annotations
