"""The message that marks a position has the prefix by which the stream knows it."""

from __future__ import annotations

from pipeline.postgres.queries import statement
from pipeline.wal.markers import OURS, POSITION_MARKER


def test_the_statement_writes_what_the_stream_looks_for() -> None:
    assert f"'{POSITION_MARKER}'" in statement("comparing", "mark_position")
    assert POSITION_MARKER in OURS
