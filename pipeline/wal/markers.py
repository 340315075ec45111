"""The server's own logical messages, which are never events: the marker of a range, and the marker of a position."""

from __future__ import annotations

from typing import TypeGuard

from pipeline.wal.messages import LogicalMessage, Message

RANGE_MARKER = "pipeline:snapshot"
"""Prefix of the marker of rows that were read from a table; its content is the range's token."""

POSITION_MARKER = "pipeline:position"
"""Prefix of the marker of a position: a client writes one and waits until the log has everything before the marker."""
OURS = (RANGE_MARKER, POSITION_MARKER)


def is_marker(message: Message) -> TypeGuard[LogicalMessage]:
    """True if the message is the marker of a range.

    A message of another user with this prefix has no effect: no range has its token.
    """
    return isinstance(message, LogicalMessage) and message.transactional and message.prefix == RANGE_MARKER
