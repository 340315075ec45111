"""WAL in: publication and slot at the source, the stream from it, and the worker that stages what it brings."""

from __future__ import annotations
