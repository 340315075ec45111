"""The replication protocol and the encoding of values: bytes in, values out. No IO."""

from __future__ import annotations
