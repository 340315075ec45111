"""Prints what is wrong, for `status`: warnings, and all that has failed or is incomplete."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.table import Table

from pipeline.capture.catchup.plan import BacklogPart
from pipeline.capture.schema_history.rewrites import RewrittenTable
from pipeline.capture.source import slots
from pipeline.capture.source.captured_tables import CaptureGap
from pipeline.cli.render import content, dead_letters, retention, routes
from pipeline.consumers import render as consumers
from pipeline.exports import render as exports
from pipeline.followers.operating import render as followers
from pipeline.operate.lag.slot_lag import SlotLag
from pipeline.operate.status import PipelineStatus
from pipeline.postgres.role_locks import RoleState
from pipeline.snapshots import render as backfills
from pipeline.terminal import drawing
from pipeline.terminal.drawing import EscapedText
from pipeline.wires.pgdeltastream import render as sessions

FEW_GAPS = 5
"""The most gaps of each kind that the status shows; `pipeline sources list` shows them all."""
_STATE_STYLES = {"running": "green", "starting": "yellow", "waiting": "yellow", "failed": "bold red"}
_MOVING = ("replication", "shuffle")
"""Roles whose problems are reasons why nothing is replicated, which the headline names."""
_UNMARKED = (
    "has no mark of this server, so another server could take it over; "
    "`pipeline check --sql --roles USER,READER` prints the SQL that marks it"
)


def sections(now: PipelineStatus) -> Iterator[RenderableType]:
    """Return the warnings, then what has failed, then what is incomplete; nothing if all is well."""
    yield from (EscapedText(f"warning: {each}", "yellow") for each in _warnings(now))
    yield from _failed(now)
    yield from _of_readers(now)
    yield from _incomplete(now)


def _warnings(now: PipelineStatus) -> Iterator[str]:
    yield from now.warnings
    if now.slot_marked is False and now.retained_bytes is not None:
        yield f"slot {now.slot} {_UNMARKED}"


def _failed(now: PipelineStatus) -> Iterator[Table]:
    """Return the sections on roles, schedules, comparisons and writes that failed."""
    if stuck := [role for role in now.roles if role.role not in _MOVING and _is_stuck(role)]:
        yield roles_table(stuck)
    if now.failed_schedules:
        yield failed_schedules(now.failed_schedules)
    if now.exports:
        yield from exports.problems(now.exports, failure_is_shown="export" in now.failed_schedules)
    if now.verification and now.verification.differing:
        yield from content.sections(now.verification)
    if any(now.dead_letters.get(state) for state in ("parked", "retrying")):
        yield dead_letters.summary(now.dead_letters)
    if missing := [each for each in now.events_tables if not each.present]:
        yield routes.summary(missing)


def _of_readers(now: PipelineStatus) -> Iterator[Table]:
    """Return the sections on readers that do not follow, and on what holds back retention."""
    if behind := [each for each in now.consumers if consumers.has_problem(each)]:
        yield consumers.summary_table(behind)
    if stopped := [each for each in now.followers if followers.has_problem(each)]:
        yield followers.summary(stopped)
    yield from sessions.lost(now.sessions)
    if now.retention:
        yield from retention.held_back(now.retention)


def _incomplete(now: PipelineStatus) -> Iterator[Table]:
    """Return the sections on tables of which the log lacks something, and on reading that is under way."""
    if now.not_captured:
        tables = sorted(now.not_captured.items())
        yield drawing.table(("not captured", "why"), ((EscapedText(name, "yellow"), reason) for name, reason in tables))
    if now.rewritten:
        yield rewrites_table(now.rewritten)
    if now.gaps:
        yield gap_table(now.gaps, FEW_GAPS)
    yield from backfills.sections(now.snapshots)
    if now.catchup:
        yield catchup_table(now.slot or "", now.catchup, now.slots)


def roles_table(found: Sequence[RoleState]) -> Table:
    """Return a line for each role: its state, its holder, and why it does not run."""
    return drawing.table(("role", "state", "holder", "pid", "since", "reason"), map(_role, found))


def _role(role: RoleState) -> list[object]:
    return [
        role.role,
        EscapedText(role.state, _STATE_STYLES.get(role.state, "red")),
        role.server,
        role.pid,
        drawing.since(role.since),
        "" if role.state == "running" else role.reason or "",
    ]


def _is_stuck(role: RoleState) -> bool:
    """True if a role has failed, or waits for something that its reason names."""
    return role.state == "failed" or bool(role.held and role.state == "waiting" and role.reason)


def failed_schedules(found: Mapping[str, str]) -> Table:
    """Return the schedules that failed when they last ran, and why."""
    return drawing.table(
        ("failed schedule", "why"), ((EscapedText(name, "bold red"), why) for name, why in found.items())
    )


def rewrites_table(found: Sequence[RewrittenTable]) -> Table:
    columns = ("rewritten without events", "columns", "after", "what to do")
    lines = (
        (EscapedText(each.table, "yellow"), each.why, drawing.position(each.from_lsn), each.remedy) for each in found
    )
    return drawing.table(columns, lines)


def gap_table(found: Sequence[CaptureGap], most: int | None = None) -> Table:
    """Return a table with a line for each gap, at most `most` of a kind, then one with the number of the others."""
    rows: list[tuple[EscapedText, str]] = []
    for kind in ("changes", "rows"):
        of_kind = [gap for gap in found if gap.what == kind]
        rows += [(EscapedText(gap.table, "yellow"), _gap_text(gap)) for gap in of_kind[:most]]
        if most is not None and len(of_kind) > most:
            more = drawing.count(len(of_kind) - most, "more table")
            rows.append((EscapedText(f"and {more}", "yellow"), "`pipeline sources list` shows them"))
    return drawing.table(("not in the log", "what"), rows)


def _gap_text(gap: CaptureGap) -> str:
    until = f"{drawing.position(gap.until_lsn)} ({drawing.cell(gap.until)})"
    if gap.what == "rows":
        return f"existing rows {until}, when the table was published; it had rows, or could not be checked"
    since = f"changes after {drawing.position(gap.from_lsn)} ({drawing.cell(gap.since)})"
    return f"{since}, when the table left the publication" + ("" if gap.until is None else f", up to {until}")


def catchup_table(anchor: str, parts: Sequence[BacklogPart], lags: Sequence[SlotLag]) -> Table:
    """Return the table of `status` on a catch-up: a line for each part, in the order of the WAL."""
    by_name = {lag.name: lag for lag in lags}
    columns = ("catching up by", "from", "until", "staged", "left", "slot is behind", "")
    names = [slots.part_name(anchor, part.worker) if part.worker else anchor for part in parts]
    return drawing.table(
        columns, (_part_line(name, part, by_name.get(name)) for name, part in zip(names, parts, strict=True))
    )


def _part_line(name: str, part: BacklogPart, lag: SlotLag | None) -> list[object]:
    return [
        name,
        drawing.position(part.from_lsn),
        "no end" if part.until_lsn is None else drawing.position(part.until_lsn),
        drawing.position(part.position),
        drawing.size(part.left_bytes),
        drawing.size(lag.lag_bytes if lag else None),
        drawing.dim(_part_state(part, lag)),
    ]


def _part_state(part: BacklogPart, lag: SlotLag | None) -> str:
    if part.complete:
        return "all staged" if part.reached else "all staged, waits for earlier parts"
    if lag is None or not lag.active:
        return "no connection reads this slot now"
    return "next in order" if part.reached else "reads ahead of its turn"
