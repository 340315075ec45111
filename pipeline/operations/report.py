"""What the commands print for people: aligned columns, coloured on a terminal, plain in a pipe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from pipeline.catalog.rewrites import Rewritten
from pipeline.catalog.roles import RoleState
from pipeline.operations import (
    catchup_report,
    consumer_report,
    export_report,
    lag_report,
    letter_report,
    retention_report,
    routes_report,
    words,
)
from pipeline.operations.findings import Finding
from pipeline.operations.known_sources import KnownSource
from pipeline.operations.status import Progress, Status
from pipeline.replication.slot import Slot

_STATE_STYLES = {"running": "green", "starting": "yellow", "waiting": "yellow", "failed": "bold red"}


def status(now: Status) -> None:
    """Whether it replicates, and if not why; positions, lag, rates, roles, tables that are not captured."""
    if now.revision is None:
        words.show(_headline(now))
    else:
        words.show(_headline(now), words.facts(_facts(now)), *_of_the_log(now))


def _of_the_log(now: Status) -> Iterator[Table]:
    """What there is to say beside the positions."""
    if now.lag:
        yield from lag_report.explained(now.lag)
    if now.catchup:
        yield catchup_report.standing(now.slot or "", now.catchup, now.slots)
    if len(now.events_tables) > 1:
        yield routes_report.standing(now.events_tables)
    yield from _of_readers(now)
    if now.roles:
        yield words.table(("role", "state", "holder", "pid", "since", "reason"), map(_role, now.roles))
    if now.not_captured:
        tables = sorted(now.not_captured.items())
        yield words.table(("not captured", "why"), ((Text(name, "yellow"), reason) for name, reason in tables))
    if now.rewritten:
        yield _rewritten(now.rewritten)


def _of_readers(now: Status) -> Iterator[Table]:
    if now.exports:
        yield export_report.standing(now.exports)
    if now.retention:
        yield retention_report.standing(now.retention)
    if now.consumers:
        yield consumer_report.standing(now.consumers)
    if any(now.dead_letters.values()):
        yield letter_report.standing(now.dead_letters)


def findings(found: Sequence[Finding]) -> None:
    """One line a finding, its remedy below; then the verdict."""
    errors = sum(finding.level == "error" for finding in found)
    warnings = sum(finding.level == "warning" for finding in found)
    verdict = "ready for `pipeline serve`" if not errors else "not ready for `pipeline serve`"
    verdict = f"{verdict}: {words.count(errors, 'error')}, {words.count(warnings, 'warning')}"
    words.show(Group(words.table(("", "", ""), map(_finding, found)), Text(verdict, "bold")))


def _finding(finding: Finding) -> tuple[Text, str, Text]:
    text = Text(finding.text)
    if finding.remedy:
        text.append(f"\n→ {finding.remedy}", "bold" if finding.level == "error" else "")
    return Text(finding.level, words.LEVEL_STYLES[finding.level]), finding.name, text


def slots(found: Sequence[Slot], none: str) -> None:
    """Each slot with what reads it and what it holds back; `none` when there is none."""
    columns = ("slot", "database", "plugin", "read by", "confirmed", "holds back", "WAL")
    words.show(words.table(columns, map(_slot, found)) if found else none)


def _slot(slot: Slot) -> list[object]:
    reader = "nobody" if slot.active_pid is None else f"{slot.holder or 'a program'} (pid {slot.active_pid})"
    return [
        slot.name,
        slot.database,
        slot.plugin + (", two-phase" if slot.two_phase else "") + (", temporary" if slot.temporary else ""),
        reader,
        words.position(slot.confirmed_lsn),
        words.size(slot.retained_bytes),
        Text(slot.wal_status or "-", "bold red" if slot.wal_status == "lost" else ""),
    ]


def sources(found: Sequence[KnownSource]) -> None:
    """Each source with its epoch and position."""
    columns = ("source", "epoch", "database", "cluster", "timeline", "slot", "publications", "position", "since")
    words.show(words.table(columns, map(_source, found)) if found else "no source has been replicated from yet")


def _source(source: KnownSource) -> list[object]:
    return [
        source.id,
        source.epoch,
        source.database,
        source.cluster,
        source.timeline,
        source.slot,
        ", ".join(source.publications),
        words.position(source.position),
        source.since,
    ]


def rewrites(found: Sequence[Rewritten]) -> None:
    """Each rewritten table with its columns and the remedy."""
    words.show(_rewritten(found) if found else "no table was rewritten without events, or all are settled")


def _rewritten(found: Sequence[Rewritten]) -> Table:
    columns = ("rewritten without events", "columns", "after", "what to do")
    lines = ((Text(each.table, "yellow"), each.why, words.position(each.from_lsn), each.remedy) for each in found)
    return words.table(columns, lines)


def _headline(now: Status) -> Text:
    if not now.reasons:
        return Text("replicating", "bold green")
    reasons = "".join(f"\n  {reason}" for reason in now.reasons)
    return Text.assemble(("not replicating", "bold red"), reasons)


def _facts(now: Status) -> Iterator[tuple[str, object, str]]:
    progress = now.progress
    yield "source", now.database or None, f"slot {now.slot}" + _held_back(now)
    yield "written", words.position(now.source_lsn), "the source has written up to here"
    yield "confirmed", words.position(now.confirmed_lsn), "the source may forget what is before" + _behind(now)
    yield "staged", words.position(progress.staged_lsn), _staged(progress)
    yield "shuffled", words.position(progress.shuffled_lsn), _shuffled(progress)
    yield "lag", _lag(now), "" if now.lag_bytes is None else words.size(now.lag_bytes)
    events, changes = progress.events_per_second, progress.changes_per_second
    yield "rates", _rate(events, "event"), _rate(changes, "change") + " staged"


def _role(role: RoleState) -> list[object]:
    state = role.state if role.held or role.state in ("failed", "stopped") else "not running"
    styled = Text(state, _STATE_STYLES.get(state, "red"))
    return [role.role, styled, role.server, role.pid, words.since(role.since), role.reason or ""]


def _held_back(now: Status) -> str:
    return (
        f" holds back {words.size(now.retained_bytes)} of WAL" if now.retained_bytes is not None else " does not exist"
    )


def _behind(now: Status) -> str:
    lags = [slot.lag_bytes for slot in now.slots if slot.name == now.slot]
    return f"; the slot is {words.size(lags[0])} behind" if lags and lags[0] is not None else ""


def _staged(progress: Progress) -> str:
    transactions = words.count(progress.staged_transactions, "transaction")
    text = f"{words.count(progress.staged_changes, 'change')} in {transactions}"
    if progress.open_changes:
        text += f", and {progress.open_changes:,} of one that has not ended"
    return text


def _shuffled(progress: Progress) -> str:
    newest = f", newest seq {progress.last_seq}" if progress.last_seq else ""
    return f"{words.count(progress.events, 'event')} in the log{newest}"


def _lag(now: Status) -> str | None:
    if not now.lag_seconds:
        return None if now.lag_seconds is None else "none"
    return f"{now.lag_seconds:,.1f} s"


def _rate(rate: float | None, noun: str) -> str:
    return "-" if rate is None else f"{rate:,.0f} {noun}s/s"
