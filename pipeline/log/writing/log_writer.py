"""What takes batches of a backlog before they are staged."""

from __future__ import annotations

from typing import Protocol

from pipeline.log.staging.batch import Batch


class Backlog(Protocol):
    """What it has taken is stored later, in a transaction of its own, in which the writer's position moves."""

    @property
    def is_open(self) -> bool:
        """Whether it has something that is not stored: then the connection is its own."""

    async def takes(self, batch: Batch) -> Batch | None:
        """Take the batch; returns what of it is to be staged, and then nothing is open."""

    async def settle(self) -> None:
        """Store what it has, if nothing came for a while."""

    async def finish(self) -> None:
        """Store what it has of whole transactions."""
