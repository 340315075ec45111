"""Print backfills, and which tables are incomplete in the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table

from pipeline.snapshots.partition_changes import PartitionNote
from pipeline.snapshots.partitions_kept import PartitionSettlement
from pipeline.snapshots.snapshot_status import SnapshotStatus
from pipeline.snapshots.status import NO_SERVER, BackfillStatus
from pipeline.terminal import drawing
from pipeline.terminal.drawing import EscapedText

_STYLES = {"complete": "green", "reading": "green", "waiting": "yellow", "paused": "yellow", "cancelled": ""}

_KINDS = {
    "initial": "initial: the table joined",
    "asked": "asked: a user asked for all rows",
    "differences": "differences: only what differs from the log is appended",
}


def line(found: BackfillStatus) -> str:
    """Return the state and the result of a backfill in one sentence."""
    said = f"backfill {found.id} of {found.table} is {found.state}"
    if found.reason:
        said += f": {found.reason}"
    if found.state == "complete":
        said += f": {drawing.count(found.rows_read, 'row')} read, {drawing.count(found.rows, 'event')}"
        newer = (
            "the log had the other rows already"
            if found.kind == "differences"
            else "the log had newer events of the other rows"
        )
        said += f"; {newer}" if found.rows < found.rows_read else ""
    return said


def started(found: BackfillStatus, *, served: bool) -> str:
    """Return the sentence for a backfill that has begun. `served`: a server runs that reads it."""
    said = f"backfill {found.id} of {found.table} has begun"
    if found.kind == "differences":
        said += "; it compares the table with the log"
    if found.condition is not None:
        said += f", of rows with {found.condition}"
    return f"{said}; `pipeline backfill show {found.id}` says how far it is" if served else f"{said}; {NO_SERVER}"


def left_running(found: BackfillStatus) -> str:
    """Return the sentence for a backfill that continues after the command stops showing its progress."""
    how = f"`pipeline backfill show {found.id}` says how far it is, `pipeline backfill cancel {found.id}` ends it"
    return f"backfill {found.id} of {found.table} continues in the server; {how}"


def summary(found: Sequence[BackfillStatus]) -> Table:
    """Return the table of backfills for `status` and `list`, one line for each."""
    columns = ("backfill", "table", "kind", "state", "ranges", "rows", "rows/s", "time left", "reason")
    return drawing.table(columns, map(_line, found))


def sections(now: SnapshotStatus | None) -> Iterator[Table]:
    """Yield tables for `status`: the backfills under way, and incomplete tables; none if all is complete."""
    if now is None:
        return
    if now.backfills:
        yield summary(now.backfills)
    yield from incomplete(now)
    if now.partitions:
        yield drawing.table(("partitioned table", "partitions"), map(_note, now.partitions))


def incomplete(now: SnapshotStatus) -> Iterator[Table]:
    """Yield a table of the captured tables that are incomplete and not read; none if all are complete."""
    if now.unread:
        rows: list[tuple[object, ...]] = [
            (EscapedText(each.table, "yellow"), each.state, each.reason) for each in now.unread
        ]
        if more := now.unread_count - len(now.unread):
            rows.append((drawing.dim(f"and {more:,} more"), "", ""))
        yield drawing.table(("not complete in the log", "state", "why"), rows)


def _note(each: PartitionNote) -> tuple[str, str]:
    said = []
    if each.unknown:
        said.append("partitions that joined or left before this version are not known")
    if each.always:
        said.append("the log keeps rows of partitions that leave")
    elif each.kept:
        said.append(f"the log stays as it is after {drawing.count(each.kept, 'change')} of partitions")
    return each.table, "; ".join(said)


def kept(found: PartitionSettlement) -> str:
    """Return the sentence about what `settle --keep` has done."""
    said = f"the log of {found.table} stays as it is: {drawing.count(found.changes, 'change')} of partitions settled"
    return f"{said}; later changes are accepted without a warning" if found.always else said


def _line(each: BackfillStatus) -> list[object]:
    return [
        each.id,
        each.table,
        each.kind,
        EscapedText(each.state, _STYLES.get(each.state, "bold red")),
        ranges(each),
        drawing.whole(each.rows),
        rate(each.rows_per_second),
        time_left(each),
        each.reason or "",
    ]


def ranges(each: BackfillStatus) -> str:
    """Return how many of the ranges are events."""
    return f"{each.ranges_done:,} of {each.ranges_all:,}" if each.ranges_all else "-"


def rate(number: float | None) -> str:
    """Return the rows a second as text."""
    return "-" if number is None else f"{number:,.0f}"


def time_left(each: BackfillStatus) -> str:
    """Return about how long the backfill still takes."""
    return "-" if each.seconds_left is None else f"about {drawing.ago(max(each.seconds_left, 1))}"


def show_backfills(found: Sequence[BackfillStatus], now: SnapshotStatus | None) -> None:
    """Print backfills, and the incomplete tables that no backfill reads."""
    none = "there are no backfills; begin one: `pipeline backfill start TABLE`"
    drawing.show(summary(found) if found else none, *(incomplete(now) if now else ()))


def show_backfill(found: BackfillStatus) -> None:
    """Print all details of a backfill."""
    drawing.show(
        summary([found]),
        drawing.table(("", ""), ((drawing.dim(label), value) for label, value in _facts(found))),
    )


def _facts(found: BackfillStatus) -> Iterator[tuple[str, object]]:
    yield "rows read", drawing.whole(found.rows_read)
    yield (
        "of about",
        None
        if found.rows_estimated is None
        else f"{drawing.count(drawing.estimate(found.rows_estimated), 'row')} of the whole table",
    )
    yield "condition", found.condition or "none: all rows"
    yield "events", None if found.first_seq is None else f"seq {found.first_seq} to {found.last_seq}"
    yield "kind", _KINDS[found.kind]
    yield "created", found.created_at
    yield "begun", found.started_at
    yield "ended", found.finished_at
