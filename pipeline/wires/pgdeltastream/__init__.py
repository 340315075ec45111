"""What clients of PG Delta Stream speak: a session begins, its snapshot is read in pages, its slot is streamed."""

from __future__ import annotations
