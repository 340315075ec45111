"""The WAL Pipeline Server: every committed change of a Postgres database as an ordered row, exactly once."""

from __future__ import annotations
