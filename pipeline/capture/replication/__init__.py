"""The replication stream from the source, and the worker that stages its changes."""

from __future__ import annotations
