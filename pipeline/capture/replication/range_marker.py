"""The marker of rows that were read from a table: a logical message that gives them their place in the stream."""

from __future__ import annotations

from typing import TypeGuard

from pipeline.wal.messages import LogicalMessage, Message

RANGE_MARKER = "pipeline:snapshot"
"""Its prefix; its content is the range's token. Such a message is the server's own, and never an event."""


def is_marker(message: Message) -> TypeGuard[LogicalMessage]:
    """Whether it is one. A stranger's says nothing: no range has its token."""
    return isinstance(message, LogicalMessage) and message.transactional and message.prefix == RANGE_MARKER
