"""Prints the status, findings and sources in aligned columns: coloured on a terminal, plain in a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table

from pipeline.capture.schema_history.rewrites import RewrittenTable
from pipeline.capture.source.failover import FailoverReport
from pipeline.cli.render import content, dead_letters, problems, retention, routes
from pipeline.consumers import render as consumers
from pipeline.exports import render as exports
from pipeline.findings import CheckFinding
from pipeline.followers.operating import render as followers
from pipeline.operate.adoption import BacklogAdoption
from pipeline.operate.known_sources import KnownSource
from pipeline.operate.lag.model import LagLimit, LagReport
from pipeline.operate.status import PipelineProgress, PipelineStatus
from pipeline.operate.ways import WayCount
from pipeline.postgres.role_locks import RoleState
from pipeline.terminal import drawing
from pipeline.terminal.drawing import EscapedText
from pipeline.wires.pgdeltastream import render as sessions
from pipeline.wires.walstream import render as walstream

_READER_STAGES = ("consumed", "followed")
"""The stages that several readers reach, each in its time; the status names the slowest reader."""
_REST = "`pipeline status --all` shows the rest"


def show_status(now: PipelineStatus, *, everything: bool = False) -> None:
    """Print what is wrong, then the six most important lines; all that is known only if `everything` is True."""
    drawing.show(*sections(now, everything=everything))


def sections(now: PipelineStatus, *, everything: bool = False) -> Iterator[RenderableType]:
    """Return the sections of the status, from top to bottom."""
    yield _headline(now)
    yield from problems.sections(now)
    if now.revision is None:
        return
    yield drawing.table(("", ""), ((drawing.dim(label), text) for label, text in _main_facts(now)))
    if not everything:
        yield drawing.dim(_REST)
        return
    yield drawing.facts(_other_facts(now))
    if now.lag:
        yield from lag_tables(now.lag)
    if len(now.events_tables) > 1:
        yield routes.summary(now.events_tables)
    yield from _of_readers(now)
    if now.roles:
        yield problems.roles_table(now.roles)


def _of_readers(now: PipelineStatus) -> Iterator[Table]:
    """Return the sections on verification, exports, retention, consumers, followers, dead letters and sessions."""
    yield from content.sections(now.verification)
    if now.exports:
        yield exports.summary(now.exports)
    if now.retention:
        yield retention.summary(now.retention)
    if now.consumers:
        yield consumers.summary_table(now.consumers)
    if now.followers:
        yield followers.summary(now.followers)
    if any(now.dead_letters.values()):
        yield dead_letters.summary(now.dead_letters)
    yield from sessions.sections(now.sessions)
    yield from walstream.sections(now.walstream)


def _headline(now: PipelineStatus) -> EscapedText:
    if now.replicating:
        return EscapedText("replicating", "bold green")
    text = EscapedText("not replicating", "bold red")
    for reason in now.reasons:
        text.line(f"  {reason}", "not bold default")
    return text


def _main_facts(now: PipelineStatus) -> Iterator[tuple[str, object]]:
    """Return the six most important lines."""
    yield "source", _source_and_slot(now)
    yield "events", _events(now.progress)
    yield "lag", _lag(now)
    yield "rates", _rates(now.progress)
    yield "limited by", _limit_text(now.lag.limited_by) if now.lag else "-"
    yield "roles", _roles(now.roles)


def _other_facts(now: PipelineStatus) -> Iterator[tuple[str, object, str]]:
    progress = now.progress
    yield "written", drawing.position(now.source_lsn), "the source has written up to here"
    yield "confirmed", drawing.position(now.confirmed_lsn), "the source may remove WAL before this" + _behind(now)
    if not (now.lag and now.lag.stages):  # else the table of stages says how far it is
        yield "stored", drawing.position(progress.staged_lsn), "the changes before this are staged"
    yield "changes", "", _staged(progress)
    if now.ways:
        yield "ways", "", _ways(now.ways)
    if now.adoption:
        yield "backlog", "", _adoption(now.adoption)
    if now.failover:
        yield "failover", "", _failover(now.failover)


def _failover(found: FailoverReport) -> str:
    """Return whether the next failover leaves a gap, and each problem."""
    text = {True: "the standbys have copies of the slot", False: "the next one leaves a gap", None: "not known"}
    return "; ".join([text[found.ready], *(problem.text for problem in found.problems)])


def _source_and_slot(now: PipelineStatus) -> str:
    database = f"database {now.database}, " if now.database else ""
    held = "does not exist" if now.source_version else "is not known, because the source could not be read"
    if now.retained_bytes is not None:
        held = f"holds back {drawing.size(now.retained_bytes)} of WAL"
    return f"{database}slot {now.slot} {held}"


def _events(progress: PipelineProgress) -> str:
    text = f"{drawing.count(progress.events, 'event')} in the log"
    if progress.last_seq:
        text += f", newest seq {progress.last_seq}"
    if progress.shuffled_lsn:
        text += f", last commit at {drawing.position(progress.shuffled_lsn)}"
    return text


def _lag(now: PipelineStatus) -> str:
    if now.lag_seconds is None and now.lag_bytes is None:
        return "-"
    seconds = "not known" if now.lag_seconds is None else f"{now.lag_seconds:,.1f} s" if now.lag_seconds else "none"
    behind = "" if now.lag_bytes is None else f", the log is {drawing.size(now.lag_bytes)} behind the source"
    return seconds + behind


def _rates(progress: PipelineProgress) -> str:
    events, changes = progress.events_per_second, progress.changes_per_second
    known = [] if events is None else [drawing.rate(events, "event")]
    known += [] if changes is None else [f"{drawing.rate(changes, 'change')} staged"]
    return ", ".join(known) or "-"


def _roles(found: Sequence[RoleState]) -> str:
    """Return how many roles run on which server, and the state of each other role."""
    run = [role for role in found if role.state == "running"]
    others = [f"{role.role} is {role.state}" for role in found if role.state != "running"]
    servers = ", ".join(sorted({role.server for role in run}))
    counted = f"{len(run)} of {len(found)} run" + (f" on {servers}" if servers else "")
    return "; ".join([counted, *others]) if found else "-"


def _behind(now: PipelineStatus) -> str:
    behind = [slot.lag_bytes for slot in now.slots if slot.name == now.slot]
    return f"; the slot is {drawing.size(behind[0])} behind" if behind and behind[0] is not None else ""


def _staged(progress: PipelineProgress) -> str:
    transactions = drawing.count(progress.staged_transactions, "transaction")
    text = f"{drawing.count(progress.staged_changes, 'change')} in {transactions}"
    if progress.open_changes:
        text += f", and {progress.open_changes:,} of a transaction that is still open"
    return f"{text} staged"


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
    text = f"{drawing.count(found.tables, 'table')} with {drawing.count(found.events, 'event')} will become partitions"
    if found.from_seq is not None:
        text += f"; more tables are being filled, from seq {found.from_seq} on"
    return f"{text}; they wait for {found.held_by}" if found.held_by else text


def lag_tables(found: LagReport) -> Iterator[Table]:
    """Return the tables of `status --all` on lag: the stages, then what limits beside the main cause."""
    if found.stages:
        yield drawing.table(("stage", "position", "behind", "lag", "behind here", "lag here"), _lag_stages(found))
    if found.also:
        yield drawing.table(("", ""), ((drawing.dim("also limited by"), _limit_text(limit)) for limit in found.also))


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
    """Print each source with its epoch and position: a line for each fact, which fits a narrow terminal."""
    drawing.show(
        *(drawing.facts(_source(each)) for each in found),
        None if found else "no source has been replicated from yet",
        *(problems.gap_table(each.gaps) for each in found if each.gaps),
    )


def _source(source: KnownSource) -> list[tuple[object, object, object]]:
    return [
        ("source", source.id, ""),
        ("epoch", source.epoch, ""),
        ("database", source.database, ""),
        ("cluster", source.cluster, ""),
        ("timeline", source.timeline, ""),
        ("slot", source.slot, ""),
        ("publications", ", ".join(source.publications), ""),
        ("position", drawing.position(source.position), ""),
        ("since", source.since, ""),
    ]


def show_rewrites(found: Sequence[RewrittenTable]) -> None:
    """Print each rewritten table with its columns and the remedy."""
    drawing.show(
        problems.rewrites_table(found) if found else "no table was rewritten without events, or all are settled"
    )
