"""The protocol of PG Delta Stream: a client begins a session, reads its snapshot in pages, and streams its slot."""

from __future__ import annotations
