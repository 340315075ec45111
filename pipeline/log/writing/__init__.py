"""The worker's process writes to the database: staged, directly, or as tables that become partitions."""

from __future__ import annotations
