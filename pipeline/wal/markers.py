"""Logical messages of our own, which are never events: the marker of rows that were read, and one to be waited for."""

from __future__ import annotations

from typing import TypeGuard

from pipeline.wal.messages import LogicalMessage, Message

RANGE_MARKER = "pipeline:snapshot"
"""Its prefix; its content is the range's token. Such a message is the server's own, and never an event."""

POSITION_MARKER = "pipeline:position"
"""Prefix of a message that moves the stored position: whoever wrote it waits until the log has all before it."""
OURS = (RANGE_MARKER, POSITION_MARKER)


def is_marker(message: Message) -> TypeGuard[LogicalMessage]:
    """Whether it is one. A stranger's says nothing: no range has its token."""
    return isinstance(message, LogicalMessage) and message.transactional and message.prefix == RANGE_MARKER
