"""What is lost by a command, for people to read before they agree."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from pipeline.capture.source.slots import Slot
from pipeline.log.readers import LaggingReader
from pipeline.operate import formatting
from pipeline.operate.repair.gap import Gap


def slot(found: Slot, ours: bool) -> Iterator[str]:
    """By deleting a slot; `ours`: the one that the server reads."""
    name = f'slot "{found.name}" of database {found.database}'
    if found.invalidated:
        yield f"{name} has lost its WAL already; nobody can read from it"
        return
    since = ""
    if found.inactive_since:
        since = f", last read {formatting.moment(datetime.fromisoformat(found.inactive_since))}"
    yield (
        f"{name} holds back {formatting.size(found.retained_bytes)} of WAL{since}: its reader gets no change any more "
        f"that was committed after {formatting.position(found.confirmed_lsn)}"
    )
    if ours:
        yield "a server whose log does not have them all stops, until `pipeline sources adopt` accepts the gap"


def lake(found: LaggingReader) -> str:
    """By retention that no longer waits for exports to a folder."""
    return (
        f"{found.name} lacks {formatting.count(found.seqs, 'seq')}, from a commit of "
        f"{formatting.moment(found.committed_at)} on: what retention drops of them it never gets"
    )


def gap(found: Gap) -> Iterator[str]:
    """By going on at the source as it is now."""
    yield from found.reasons
    if found.begins:
        yield f"this log begins at {formatting.position(found.staged)}: what the slot sent before never comes again"
        yield "the other pipeline database, if there is one, gets no change any more that this one receives"
        return
    newest = f", and its newest event was committed {formatting.moment(found.newest)}" if found.newest else ""
    yield f"the log has what was staged up to {formatting.position(found.staged)}{newest}"
    if found.bytes is None:
        yield f"{found.database} has another history: what the log lacks of the one before never comes"
    else:
        yield f"of {formatting.size(found.bytes)} of WAL that was written since, what the slot cannot send never comes"
