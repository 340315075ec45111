"""Close codes of WebSockets: those of RFC 6455, and those of this server. Pure."""

from __future__ import annotations

NOT_SUPPORTED, NOT_TEXT, POLICY, SERVER_ERROR, RESTART = 1003, 1007, 1008, 1011, 1012
UNKNOWN, HELD, EXPIRED = 4404, 4409, 4410
"""UNKNOWN: no such consumer. HELD: another client reads it. EXPIRED: the events after its position were dropped."""
