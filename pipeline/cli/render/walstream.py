"""Prints sessions of walstream's clients: who, since when, and what each has not acknowledged."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from pipeline.operate import formatting
from pipeline.operate.walstream_status import Walstream, WalstreamSession


def sections(found: Walstream | None) -> Iterator[Table]:
    """For `status`: one line for each session."""
    if found and found.sessions:
        columns = (f"walstream sessions ({len(found.sessions)})", "for", "sent up to", "unacknowledged", "")
        yield formatting.table(columns, map(_line, found.sessions))


def _line(session: WalstreamSession) -> list[object]:
    if session.ended_at is not None:
        ended = f"ended {formatting.since(session.ended_at)} ago, waited for a minute"
    else:
        ended = "" if session.connected else "its server was killed; waited for a minute once another serves"
    return [
        session.peer,
        formatting.since(session.since),
        session.sent_seq or "-",
        Text(f"{session.unacknowledged:,}", "yellow" if session.unacknowledged else ""),
        ended,
    ]
