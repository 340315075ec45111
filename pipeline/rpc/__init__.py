"""The role grpc: serves the log over gRPC, by this product's protocol and by walstream's."""

from __future__ import annotations
