"""Close codes of WebSockets, those of RFC 6455 and our own. Pure."""

from __future__ import annotations

NOT_SUPPORTED, NOT_TEXT, POLICY, SERVER_ERROR, RESTART = 1003, 1007, 1008, 1011, 1012
UNKNOWN, HELD, EXPIRED = 4404, 4409, 4410
"""No such consumer, read by another reader, its position is no longer kept."""
