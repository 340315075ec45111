"""Prints sessions of walstream's clients: their peers, since when, and what each has acknowledged."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from pipeline.terminal import drawing
from pipeline.terminal.drawing import EscapedText
from pipeline.wires.walstream.status import WalstreamSession, WalstreamStatus


def sections(found: WalstreamStatus | None) -> Iterator[Table]:
    """Yield a table for `status`: one line for each session."""
    if found and found.sessions:
        first = f"walstream sessions ({len(found.sessions)})"
        columns = (first, "for", "sent up to", "acknowledged up to", "unacknowledged", "")
        yield drawing.table(columns, map(_line, found.sessions))


def _line(session: WalstreamSession) -> list[object]:
    if session.ended_at is not None:
        remains = 60 if session.hold_seconds is None else session.hold_seconds
        ended = f"ended {drawing.since(session.ended_at)} ago, holds the position for {remains:.0f} s more"
    else:
        ended = "" if session.connected else "its server was killed; holds the position for 60 s once another serves"
    return [
        session.peer,
        drawing.since(session.since),
        session.sent_seq or "-",
        "-" if session.acknowledged_seq is None else session.acknowledged_seq,
        EscapedText(f"{session.unacknowledged:,}", "yellow" if session.unacknowledged else ""),
        ended,
    ]
