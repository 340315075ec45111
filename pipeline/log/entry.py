"""An event as it is sent to clients: finished JSON. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JsonEvent:
    """One event; `event` is its JSON as Postgres prints it. Adjacent events of one `transaction` belong together."""

    seq: int
    table: str
    action: str
    transaction: str
    commit_lsn: int | None
    xid: int | None
    event: str

    @property
    def size(self) -> int:
        """The number of characters of the event."""
        return len(self.event)
