"""Texts on the data that a command loses, for people to read before they agree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
        f"{name} holds back {drawing.size(found.retained_bytes)} of WAL{since}: its reader will never receive "
        f"the changes committed after {drawing.position(found.confirmed_lsn)}"
    )
    if ours:
        yield "if the log lacks some of these changes, the server stops until `pipeline sources adopt` accepts the gap"


def session(found: StoredSession, slot: Slot | None) -> Iterator[str]:
    """Return what ending a client's session loses; its slot is None if it no longer exists."""
    read = f", which {found.reader} streams" if slot and slot.active_pid is not None and found.reader else ""
    yield (
        f'slot "{found.slot}" belongs to a session of {found.wire}{read}: its client is disconnected, and will never '
        f"receive the changes committed after {drawing.position(found.position)}"
    )
    if slot is not None:
        yield f"the slot holds back {drawing.size(slot.retained_bytes)} of WAL; our slot and other sessions stay"


def lake(found: LaggingReader) -> str:
    """Return what is lost if retention no longer waits for exports to a folder."""
    return (
        f"{found.name} lacks {drawing.count(found.seqs, 'seq')}, the oldest committed "
        f"{drawing.moment(found.committed_at)}: it will never receive those that retention drops"
    )


def gap(found: HistoryGap, *, reread: bool = False) -> Iterator[str]:
    """Return what is lost if the server continues at the source as it is now.

    `reread`: the next server compares the tables with the log.
    """
    yield from found.reasons
    if found.begins:
        yield f"this log begins at {drawing.position(found.staged)}: the slot will not send earlier changes again"
        yield "if another pipeline database uses this slot, it will miss the changes that this one receives"
        if reread:
            yield "--reread compares nothing, since the log is empty; `pipeline backfill start` reads a table"
        return
    newest = f", and its newest event was committed {drawing.moment(found.newest)}" if found.newest else ""
    yield f"the log has all changes up to {drawing.position(found.staged)}{newest}"
    if found.upgraded:
        yield "--upgraded says that pg_upgrade kept the slot: if the slot was made again after writes, they are lost"
    elif found.bytes is None:
        yield f"{found.database} has another history now: the log will never receive more of the earlier one"
    else:
        written = drawing.size(found.bytes)
        yield f"the source has written {written} of WAL since then; the log will lack what the slot cannot send"
    if found.sessions:
        yield (
            f"the sessions of clients end, and their slots are deleted ({', '.join(found.sessions)}): their positions"
            " belong to the earlier history, so each client must begin again with a new session and its snapshot"
        )
    if reread:
        yield from _reread(found)
    elif not found.upgraded:
        yield "with --reread, the next server also compares all captured tables with the log, and appends what differs"


def _reread(found: HistoryGap) -> Iterator[str]:
    yield (
        "all captured tables are compared with the log, and only rows that differ are appended: each in its present"
        " state, without the changes that led to it"
    )
    if found.keyless:
        some = _some(found.keyless)
        yield f"tables without a key are read completely, so the log will not show which rows were deleted: {some}"
    if found.partly_known:
        yield (
            "the log does not know all rows of some tables: it gets the rows that it lacks as read events, and no"
            f" deletes of rows that it never had: {_some(found.partly_known)}"
        )
    if found.elsewhere:
        yield "tables whose oid has changed are read completely, and the log will not show which rows were deleted"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_SOME]) + (", …" if len(names) > _SOME else "")
