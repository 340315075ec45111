"""Prints the status, findings and sources in aligned columns: coloured on a terminal, plain in a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table

from pipeline.capture.catchup.plan import BacklogPart
from pipeline.capture.schema_history.rewrites import RewrittenTable
from pipeline.capture.source import slots
from pipeline.capture.source.captured_tables import CaptureGap
from pipeline.cli.render import content, dead_letters, retention, routes
from pipeline.consumers import render as consumers
from pipeline.exports import render as exports
from pipeline.findings import CheckFinding
from pipeline.followers.operating import render as followers
from pipeline.operate.adoption import BacklogAdoption
from pipeline.operate.lag.model import LagLimit, LagReport
from pipeline.operate.lag.slot_lag import SlotLag
from pipeline.operate.sources import KnownSource
from pipeline.operate.status import PipelineProgress, PipelineStatus
from pipeline.operate.ways import WayCount
from pipeline.postgres.role_locks import RoleState
from pipeline.snapshots import render as backfills
from pipeline.terminal import drawing
from pipeline.terminal.drawing import EscapedText
from pipeline.wires.pgdeltastream import render
from pipeline.wires.walstream import render as walstream

_STATE_STYLES = {"running": "green", "starting": "yellow", "waiting": "yellow", "failed": "bold red"}
_READER_STAGES = ("consumed", "followed")
"""The stages of lag that many readers reach; the status names the slowest reader."""
FEW_GAPS = 5
"""The most gaps of each kind that the status shows; `pipeline sources list` shows them all."""


def show_status(now: PipelineStatus) -> None:
    """Print the status: if the source is replicated, or why not; positions, lag, rates, roles, tables not captured."""
    drawing.show(*sections(now))


def sections(now: PipelineStatus) -> Iterator[RenderableType]:
    """Return the sections of the status, from top to bottom."""
    yield _headline(now)
    yield from (EscapedText(f"warning: {each}", "yellow") for each in now.warnings)
    if now.revision is not None:
        yield drawing.facts(_facts(now))
        yield from _of_the_log(now)


def _of_the_log(now: PipelineStatus) -> Iterator[Table]:
    """Return the sections of the status below its head."""
    if now.lag:
        yield from lag_tables(now.lag)
    if now.catchup:
        yield catchup_table(now.slot or "", now.catchup, now.slots)
    yield from backfills.sections(now.snapshots)
    yield from content.sections(now.verification)
    if len(now.events_tables) > 1:
        yield routes.summary(now.events_tables)
    yield from _of_readers(now)
    yield from render.sections(now.sessions)
    yield from walstream.sections(now.walstream)
    if now.roles:
        yield drawing.table(("role", "state", "holder", "pid", "since", "reason"), map(_role, now.roles))
    yield from _problems(now)


def _problems(now: PipelineStatus) -> Iterator[Table]:
    """Return the sections on failed schedules, and on tables whose changes or rows the log lacks."""
    if now.failed_schedules:
        yield failed_schedules(now.failed_schedules)
    if now.not_captured:
        tables = sorted(now.not_captured.items())
        yield drawing.table(("not captured", "why"), ((EscapedText(name, "yellow"), reason) for name, reason in tables))
    if now.rewritten:
        yield _rewritten(now.rewritten)
    if now.gaps:
        yield gap_table(now.gaps, FEW_GAPS)


def _of_readers(now: PipelineStatus) -> Iterator[Table]:
    if now.exports:
        yield exports.summary(now.exports)
    if now.retention:
        yield retention.summary(now.retention)
    if now.consumers:
        yield consumers.summary(now.consumers)
    if now.followers:
        yield followers.summary(now.followers)
    if any(now.dead_letters.values()):
        yield dead_letters.summary(now.dead_letters)


def failed_schedules(found: Mapping[str, str]) -> Table:
    """Return the schedules that failed when they last ran, and why."""
    return drawing.table(
        ("failed schedule", "why"), ((EscapedText(name, "bold red"), why) for name, why in found.items())
    )


def show_findings(found: Sequence[CheckFinding]) -> None:
    """Print one line for each finding, with its remedy below the line; then the verdict."""
    errors = sum(finding.level == "error" for finding in found)
    warnings = sum(finding.level == "warning" for finding in found)
    verdict = "ready for `pipeline serve`" if not errors else "not ready for `pipeline serve`"
    verdict = f"{verdict}: {drawing.count(errors, 'error')}, {drawing.count(warnings, 'warning')}"
    drawing.show(Group(drawing.table(("", "", ""), map(_finding, found)), EscapedText(verdict, "bold")))


def _finding(finding: CheckFinding) -> tuple[EscapedText, str, EscapedText]:
    text = EscapedText(finding.text)
    if finding.remedy:
        text.line(f"→ {finding.remedy}", "bold" if finding.level == "error" else "")
    return EscapedText(finding.level, drawing.LEVEL_STYLES[finding.level]), finding.name, text


def show_sources(found: Sequence[KnownSource]) -> None:
    """Print each source with its epoch and position."""
    columns = ("source", "epoch", "database", "cluster", "timeline", "slot", "publications", "position", "since")
    drawing.show(
        drawing.table(columns, map(_source, found)) if found else "no source has been replicated from yet",
        *(gap_table(each.gaps) for each in found if each.gaps),
    )


def _source(source: KnownSource) -> list[object]:
    return [
        source.id,
        source.epoch,
        source.database,
        source.cluster,
        source.timeline,
        source.slot,
        ", ".join(source.publications),
        drawing.position(source.position),
        source.since,
    ]


def show_rewrites(found: Sequence[RewrittenTable]) -> None:
    """Print each rewritten table with its columns and the remedy."""
    drawing.show(_rewritten(found) if found else "no table was rewritten without events, or all are settled")


def _rewritten(found: Sequence[RewrittenTable]) -> Table:
    columns = ("rewritten without events", "columns", "after", "what to do")
    lines = (
        (EscapedText(each.table, "yellow"), each.why, drawing.position(each.from_lsn), each.remedy) for each in found
    )
    return drawing.table(columns, lines)


def _headline(now: PipelineStatus) -> EscapedText:
    if now.replicating:
        return EscapedText("replicating", "bold green")
    text = EscapedText("not replicating", "bold red")
    for reason in now.reasons:
        text.line(f"  {reason}", "not bold default")
    return text


def _facts(now: PipelineStatus) -> Iterator[tuple[str, object, str]]:
    progress = now.progress
    yield "source", now.database or None, f"slot {now.slot}" + _held_back(now)
    yield "written", drawing.position(now.source_lsn), "the source has written up to here"
    yield "confirmed", drawing.position(now.confirmed_lsn), "the source may remove WAL before this" + _behind(now)
    if not (now.lag and now.lag.stages):  # else the table of stages says how far it is
        yield "stored", drawing.position(progress.staged_lsn), "the changes before this are staged"
    yield "changes", "", _staged(progress)
    yield "events", "", _events(progress)
    if now.ways:
        yield "ways", "", _ways(now.ways)
    if now.adoption:
        yield "backlog", "", _adoption(now.adoption)
    yield "lag", _lag(now), "" if now.lag_bytes is None else f"the log is {drawing.size(now.lag_bytes)} behind"
    events, changes = progress.events_per_second, progress.changes_per_second
    yield "rates", _rate(events, "event"), _rate(changes, "change") + " staged"


def _role(role: RoleState) -> list[object]:
    styled = EscapedText(role.state, _STATE_STYLES.get(role.state, "red"))
    return [
        role.role,
        styled,
        role.server,
        role.pid,
        drawing.since(role.since),
        "" if role.state == "running" else role.reason or "",
    ]


_UNMARKED = (
    "without our mark, so another server could take it over; `pipeline check --sql --roles USER,READER` prints the SQL"
)


def _held_back(now: PipelineStatus) -> str:
    return (
        f" holds back {drawing.size(now.retained_bytes)} of WAL"
        if now.retained_bytes is not None
        else " does not exist"
    ) + ("" if now.slot_marked is not False else f"; {_UNMARKED}")


def _behind(now: PipelineStatus) -> str:
    behind = [slot.lag_bytes for slot in now.slots if slot.name == now.slot]
    return f"; the slot is {drawing.size(behind[0])} behind" if behind and behind[0] is not None else ""


def _staged(progress: PipelineProgress) -> str:
    transactions = drawing.count(progress.staged_transactions, "transaction")
    text = f"{drawing.count(progress.staged_changes, 'change')} in {transactions}"
    if progress.open_changes:
        text += f", and {progress.open_changes:,} of one that is still open"
    return f"{text} staged"


def _events(progress: PipelineProgress) -> str:
    text = f"{drawing.count(progress.events, 'event')} in the log"
    if progress.last_seq:
        text += f", newest seq {progress.last_seq}"
    if progress.shuffled_lsn:
        text += f", last commit at {drawing.position(progress.shuffled_lsn)}"
    return text


def _ways(found: Sequence[WayCount]) -> str:
    """Return the share of each write path, and the most common reason for staging."""
    total = sum(each.changes for each in found) or 1
    at_once, adopted = (sum(each.changes for each in found if each.way == way) for way in ("at_once", "adopt"))
    text = f"{at_once / total:.0%} of changes written at once"
    text += f", {adopted / total:.0%} adopted as partitions" if adopted else ""
    reasons = max((each for each in found if each.reason), key=lambda each: each.changes, default=None)
    return text if reasons is None else f"{text}; the others staged first, most for: {reasons.reason.replace('_', ' ')}"


def _adoption(found: BacklogAdoption) -> str:
    """Return how many tables of a backlog wait to become partitions, and which reader delays them."""
    text = f"{found.tables:,} tables with {drawing.count(found.events, 'event')} wait to become partitions"
    if found.from_seq is not None:
        text += f"; more tables are being filled, from seq {found.from_seq} on"
    return f"{text}; they wait for {found.held_by}" if found.held_by else text


def _lag(now: PipelineStatus) -> str | None:
    if not now.lag_seconds:
        return None if now.lag_seconds is None else "none"
    return f"{now.lag_seconds:,.1f} s"


def _rate(rate: float | None, noun: str) -> str:
    return "-" if rate is None else f"{rate:,.0f} {noun}s/s"


def lag_tables(found: LagReport) -> Iterator[Table]:
    """Return the tables of `status` on lag: the stages, then the limits."""
    if found.stages:
        yield drawing.table(("stage", "position", "behind", "lag", "behind here", "lag here"), _lag_stages(found))
    limits = enumerate(found.limits)
    yield drawing.table(
        ("", ""), ((drawing.dim("also" if place else "limited by"), _limit_text(limit)) for place, limit in limits)
    )


def _lag_stages(found: LagReport) -> Iterator[tuple[str, ...]]:
    yield "written", drawing.position(found.written_lsn), "", "", "", ""
    for stage in found.stages:
        yield (
            stage.stage + (f" by {stage.reader}" if stage.reader and stage.stage in _READER_STAGES else ""),
            drawing.position(stage.lsn),
            *_lag_amount(stage.behind_bytes, stage.behind_seconds),
            *_lag_amount(stage.own_bytes, stage.own_seconds),
        )


def _lag_amount(size: int, seconds: float | None) -> tuple[str, str]:
    if not size and not seconds:
        return "-", ""
    return drawing.size(size), "?" if seconds is None else drawing.lasted(seconds)


def _limit_text(limit: LagLimit) -> EscapedText:
    text = EscapedText(limit.text, "green" if limit.part == "nothing" else "yellow")
    return text.line(f"→ {limit.remedy}") if limit.remedy else text


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
