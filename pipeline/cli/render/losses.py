"""Texts on the data that a command loses, for people to read before they agree."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from pipeline.capture.source.slots import Slot
from pipeline.log.readers import LaggingReader
from pipeline.operate.repair.gap import HistoryGap
from pipeline.terminal import drawing
from pipeline.wires.pgdeltastream.sessions.store import StoredSession

_SOME = 5
"""The most tables that a line names."""


def slot(found: Slot, ours: bool) -> Iterator[str]:
    """Return what deleting a slot loses; `ours`: it is the one that the server reads."""
    name = f'slot "{found.name}" of database {found.database}'
    if found.invalidated:
        yield f"{name} has lost its WAL already; no program can read from it"
        return
    since = ""
    if found.inactive_since:
        since = f", last read {drawing.moment(datetime.fromisoformat(found.inactive_since))}"
    yield (
        f"{name} holds back {drawing.size(found.retained_bytes)} of WAL{since}: its reader gets no change any more "
        f"that was committed after {drawing.position(found.confirmed_lsn)}"
    )
    if ours:
        yield "a server whose log does not have them all stops, until `pipeline sources adopt` accepts the gap"


def session(found: StoredSession, slot: Slot | None) -> Iterator[str]:
    """Return what ending a client's session loses; its slot is None if it no longer exists."""
    read = f", which {found.reader} streams" if slot and slot.active_pid is not None and found.reader else ""
    yield (
        f'slot "{found.slot}" is of a session of {found.wire}{read}: its client is cut off, and gets no change any '
        f"more that was committed after {drawing.position(found.position)}"
    )
    if slot is not None:
        yield f"it holds back {drawing.size(slot.retained_bytes)} of WAL; our slot and other sessions stay"


def lake(found: LaggingReader) -> str:
    """Return what is lost if retention no longer waits for exports to a folder."""
    return (
        f"{found.name} lacks {drawing.count(found.seqs, 'seq')}, from a commit of "
        f"{drawing.moment(found.committed_at)} on: what retention drops of them it never gets"
    )


def gap(found: HistoryGap, *, reread: bool = False) -> Iterator[str]:
    """Return what is lost if the server continues at the source as it is now.

    `reread`: the next server compares the tables with the log.
    """
    yield from found.reasons
    if found.begins:
        yield f"this log begins at {drawing.position(found.staged)}: what the slot sent before never comes again"
        yield "the other pipeline database, if there is one, gets no change any more that this one receives"
        if reread:
            yield "there is no log to compare tables with: nothing is reread, `pipeline backfill start` reads a table"
        return
    newest = f", and its newest event was committed {drawing.moment(found.newest)}" if found.newest else ""
    yield f"the log has what was staged up to {drawing.position(found.staged)}{newest}"
    if found.bytes is None:
        yield f"{found.database} has another history: what the log lacks of the one before never comes"
    else:
        yield f"of {drawing.size(found.bytes)} of WAL that was written since, what the slot cannot send never comes"
    if found.sessions:
        yield (
            f"sessions of clients end, with their slots ({', '.join(found.sessions)}): their positions are of the"
            " history before, and each client has to begin again, with a new session and its snapshot"
        )
    if reread:
        yield from _reread(found)


def _reread(found: HistoryGap) -> Iterator[str]:
    yield (
        "all captured tables are compared with the log, and only what differs is appended: of each row the state that"
        " it has now, not the changes that led to it"
    )
    if found.keyless:
        some = ", ".join(found.keyless[:_SOME]) + (", …" if len(found.keyless) > _SOME else "")
        yield f"tables without a key are read as they are now; which of their rows were deleted is never known: {some}"
    if found.elsewhere:
        yield "tables that have another oid there than the log knows are read whole, and deletes in them are not known"
