"""Writes events as walstream's messages, each once for all sessions."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from orjson import loads

from pipeline.log.page import EventFilter
from pipeline.log.shapes import EventColumns
from pipeline.rpc.protos import plugin_pb2 as pb
from pipeline.wires.walstream import payload

logger = logging.getLogger(__name__)

ACTIONS = ("insert", "update", "delete", "truncate")
"""Actions that these clients know. A `read` is sent as an insert: first rows of new tables, or all if the consumer
selects `read`."""
BUFFER_BYTES = 8_000_000
"""Bytes of the newest messages that are kept for sessions that reach them later."""
_EVENTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "insert": ("insert", pb.InsertEvent),
    "read": ("insert", pb.InsertEvent),
    "update": ("update", pb.UpdateEvent),
    "delete": ("delete", pb.DeleteEvent),
}


def wanted(consumer: EventFilter) -> EventFilter:
    """Return the filter by which sessions read for the consumer `walstream`.

    If it selects inserts, it includes rows that a backfill has read.
    """
    actions = tuple(action for action in ACTIONS if action in (consumer.actions or ACTIONS))
    reads = ("read",) if "insert" in actions or "read" in consumer.actions else ()
    return EventFilter(consumer.tables, (*actions, *reads) or ("none",), consumer.within)


class WalstreamMessages:
    """Writes events as messages, and keeps the newest messages for other sessions."""

    def __init__(self, shortened: Callable[[], None]) -> None:
        """`shortened` is called for each event that goes out without some of its values."""
        self._shortened = shortened
        self._written: OrderedDict[int, bytes | None] = OrderedDict()
        self._size = 0

    def serialize(self, event: EventColumns) -> bytes | None:
        """Return an event as a serialized ServerMessage; None if it has no values."""
        if event.seq in self._written:
            return self._written[event.seq]
        message = self._write(event)
        self._written[event.seq] = message
        self._size += len(message or b"")
        while self._size > BUFFER_BYTES and len(self._written) > 1:
            self._size -= len(self._written.popitem(last=False)[1] or b"")
        return message

    def _write(self, event: EventColumns) -> bytes | None:
        if event.metadata is not None and _says_nothing_new(event.action, loads(event.metadata)):
            return None
        place: dict[str, Any] = {"pg_lsn": event.commit_lsn or 0, "schema": event.schema, "table": event.name}
        if event.action == "truncate":
            return pb.ServerMessage(truncate=pb.TruncateEvent(**place)).SerializeToString()
        kind, make = _EVENTS[event.action]
        made = payload.payload(event.record, event.exact)
        if made.without:
            self._shortened()
            logger.warning(
                "seq %d of %s went out without %s: these clients take no message above 4 MiB",
                event.seq,
                event.table,
                ", ".join(made.without),
                extra={"action": "walstream.shortened", "seq": event.seq},
            )
        return pb.ServerMessage(**{kind: make(**place, json_payload=made.text)}).SerializeToString()


def _says_nothing_new(action: str, metadata: dict[str, Any]) -> bool:
    """True if the event has no values, or older ones than the log (docs/events.md): these clients see no metadata."""
    without_values = "skipped" in metadata or ("parked" in metadata and action != "delete")
    return without_values or "outdated" in metadata
