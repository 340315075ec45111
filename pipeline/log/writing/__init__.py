"""Write the changes of a worker to the database: staged, directly, or as tables that become partitions."""

from __future__ import annotations
