"""Prints sessions of other systems' wires: what each does, what it holds back, and what would end it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from rich.table import Table

from pipeline.terminal import drawing
from pipeline.terminal.drawing import EscapedText
from pipeline.wires.pgdeltastream.status import SessionsReport, SessionStatus, State

_STYLES: dict[State, str] = {"streamed": "green", "lost": "bold red"}
_SAID: dict[State, str] = {
    "making": "its slot is being made",
    "snapshot": "its snapshot can be read; no stream yet",
    "idle": "no client reads it",
    "lost": "its slot can no longer be read",
    "unknown": "the source does not answer",
}


def sections(found: SessionsReport | None) -> Iterator[Table]:
    """Yield tables for `status`: one line for each session, and for each session that ended in the last day."""
    if found and found.live:
        yield _live(found.live, f"sessions ({len(found.live)} of {found.most})")
    if found and found.ended:
        lines = ((each.slot, each.wire, f"{drawing.since(each.ended_at)} ago", each.reason) for each in found.ended)
        yield drawing.table(("ended sessions", "wire", "when", "why"), lines)


def lost(found: SessionsReport | None) -> Iterator[Table]:
    """Yield a table for `status` if the slot of a session can no longer be read: a line for each."""
    if found and (ended := [each for each in found.live if each.state == "lost"]):
        yield _live(ended, "session")


def _live(found: Sequence[SessionStatus], title: str) -> Table:
    now = datetime.now(UTC)
    columns = (title, "wire", "now", "for", "holds back", "is dropped")
    return drawing.table(columns, (_line(each, now) for each in found))


def _line(session: SessionStatus, now: datetime) -> list[object]:
    return [
        session.slot,
        session.wire,
        EscapedText(describe_state(session), _STYLES.get(session.state, "")),
        drawing.ago((now - session.since).total_seconds()),
        drawing.size(session.retained_bytes),
        drawing.dim(session.ends),
    ]


def describe_state(session: SessionStatus) -> str:
    """Say what a session does now."""
    return _SAID.get(session.state) or f"streamed by {session.reader}"
