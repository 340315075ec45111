"""What the commands print for people: aligned columns, coloured on a terminal, plain in a pipe."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from rich.console import Console
from rich.progress import Progress as ProgressBar
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
from pipeline.operations.check import Finding
from pipeline.operations.faults import Check, Fault, Verification
from pipeline.operations.known_sources import KnownSource
from pipeline.operations.status import Progress, Status
from pipeline.replication.slot import Slot
from pipeline.wal import lsn

_LEVEL_STYLES = {"ok": "green", "warning": "yellow", "error": "bold red"}
_STATE_STYLES = {"running": "green", "starting": "yellow", "waiting": "yellow", "failed": "bold red"}


def status(now: Status) -> None:
    """Whether it replicates, and if not why; positions, lag, rates, roles, tables that are not captured."""
    console = words.console()
    _headline(console, now)
    if now.revision is None:
        return
    for section in [_facts(now), *_of_the_log(now)]:
        console.print()
        console.print(section)


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
        yield _roles(now.roles)
    yield from _tables(now)


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
    console = words.console()
    table = words.table("", "", "")
    for finding in found:
        text = Text(finding.text)
        if finding.remedy:
            text.append(f"\n→ {finding.remedy}", "bold" if finding.level == "error" else "")
        table.add_row(Text(finding.level, _LEVEL_STYLES[finding.level]), finding.name, text)
    console.print(table)
    errors = sum(finding.level == "error" for finding in found)
    warnings = sum(finding.level == "warning" for finding in found)
    verdict = "ready for `pipeline serve`" if not errors else "not ready for `pipeline serve`"
    console.print(Text(f"{verdict}: {words.count(errors, 'error')}, {words.count(warnings, 'warning')}", "bold"))


def slots(found: Sequence[Slot], none: str) -> None:
    """Each slot with what reads it and what it holds back; `none` when there is none."""
    console = words.console()
    if not found:
        console.print(none)
        return
    table = words.table("slot", "database", "plugin", "read by", "confirmed", "holds back", "WAL")
    for slot in found:
        table.add_row(
            slot.name,
            slot.database,
            slot.plugin + (", two-phase" if slot.two_phase else "") + (", temporary" if slot.temporary else ""),
            _reader(slot),
            _position(slot.confirmed_lsn),
            words.size(slot.retained_bytes),
            Text(slot.wal_status or "-", "bold red" if slot.wal_status == "lost" else ""),
        )
    console.print(table)


@contextmanager
def verifying() -> Iterator[Callable[[int, int, int], None]]:
    """Shows on a terminal how far `verify` has read; gone when it is done. Standard output stays for the result."""
    console = Console(stderr=True)
    with ProgressBar(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("verifying", total=None)

        def show(first: int, reached: int, last: int) -> None:
            bar.update(task, description=f"seq {reached:,}", total=last - first + 1, completed=reached - first + 1)

        yield show


def verification(found: Verification) -> None:
    """One line a check, the rows that break it below; then the verdict."""
    console = words.console()
    if not found.checks:
        console.print("nothing to verify: no source has been replicated yet")
        return
    table = words.table("", "", "", "")
    for check in found.checks:
        table.add_row(*_checked(check))
    console.print(table)
    for check in found.checks:
        if check.faults:
            console.print()
            console.print(_faults(check))
    rate = found.rows / found.seconds if found.seconds else 0
    verdict = "as it must be" if found.ok else f"{words.count(sum(check.broken for check in found.checks), 'fault')}"
    read = f"{words.count(found.rows, 'row')} in {words.count(found.transactions, 'transaction')}"
    console.print()
    where = f"from seq {found.first_seq} to {found.last_seq}" if found.rows else "without rows"
    console.print(
        Text(f"{found.events_table} {where}: {verdict}", "bold"),
        Text(f"{read}, {found.seconds:,.1f} s, {rate:,.0f} rows/s", "dim"),
        sep="\n",
    )
    if found.tables:
        console.print(f"with all events tables that were ever written: {', '.join(found.tables)}")
    if found.unplaced:
        console.print(f"{words.count(found.unplaced, 'row')} without a position, from before a migration, left out")


def sources(found: Sequence[KnownSource]) -> None:
    """Each source with its epoch and position."""
    console = words.console()
    if not found:
        console.print("no source has been replicated from yet")
        return
    table = words.table(
        "source", "epoch", "database", "cluster", "timeline", "slot", "publications", "position", "since"
    )
    for source in found:
        table.add_row(
            source.id,
            str(source.epoch),
            source.database,
            source.cluster,
            "-" if source.timeline is None else str(source.timeline),
            source.slot,
            ", ".join(source.publications),
            _position(source.position),
            "-" if source.since is None else source.since.isoformat(" ", "seconds"),
        )
    console.print(table)


def rewrites(found: Sequence[Rewritten]) -> None:
    """Each rewritten table with its columns and the remedy."""
    words.console().print(_rewritten(found) if found else "no table was rewritten without events, or all are settled")


def _headline(console: Console, now: Status) -> None:
    if not now.reasons:
        console.print(Text("replicating", "bold green"))
        return
    console.print(Text("not replicating", "bold red"))
    for reason in now.reasons:
        console.print(Text(f"  {reason}"))


def _facts(now: Status) -> Table:
    progress = now.progress
    table = words.table("", "", "")
    rows = [
        ("source", now.database or "-", f"slot {now.slot}" + _held_back(now)),
        ("written", _position(now.source_lsn), "the source has written up to here"),
        ("confirmed", _position(now.confirmed_lsn), "the source may forget what is before" + _behind(now)),
        ("staged", _position(progress.staged_lsn), _staged(progress)),
        ("shuffled", _position(progress.shuffled_lsn), _shuffled(progress)),
        ("lag", _lag(now), "" if now.lag_bytes is None else words.size(now.lag_bytes)),
        ("rates", _rate(progress.events_per_second, "event"), _rate(progress.changes_per_second, "change") + " staged"),
    ]
    for label, value, note in rows:
        table.add_row(Text(label, "dim"), value, Text(note, "dim"))
    return table


def _roles(held: Iterable[RoleState]) -> Table:
    table = words.table("role", "state", "holder", "pid", "since", "reason")
    now = datetime.now(UTC)
    for role in held:
        state = role.state if role.held or role.state in ("failed", "stopped") else "not running"
        style = _STATE_STYLES.get(state, "red")
        table.add_row(
            role.role,
            Text(state, style),
            role.server,
            str(role.pid),
            words.ago((now - role.since).total_seconds()),
            role.reason or "",
        )
    return table


def _checked(check: Check) -> tuple[Text, str, str, Text]:
    state = Text("ok", _LEVEL_STYLES["ok"])
    if check.broken:
        state = Text("broken", _LEVEL_STYLES["error"])
    elif check.not_checked and not check.checked:
        state = Text("not checked", _LEVEL_STYLES["warning"])
    note = check.rule + (f"; not checked: {check.not_checked}" if check.not_checked else "")
    return state, check.name, words.count(check.checked, check.noun), Text(note, "dim")


def _faults(check: Check) -> Table:
    table = words.table(check.name, "epoch", "commit_lsn", "idx", "table", "wrong", "expected")
    for fault in check.faults:
        table.add_row(
            _seq(fault),
            *(_or_dash(value) for value in (fault.source_epoch, fault.commit_lsn)),
            _or_dash(fault.commit_idx),
            _or_dash(fault.table),
            Text(fault.wrong, "bold red"),
            fault.expected,
        )
    if check.broken > len(check.faults):
        table.add_row(Text(f"and {check.broken - len(check.faults):,} more", "bold"))
    return table


def _seq(fault: Fault) -> str:
    return "-" if fault.seq is None else f"seq {fault.seq}"


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)


def _tables(now: Status) -> Iterator[Table]:
    """Those that somebody has to look after."""
    if now.not_captured:
        yield _not_captured(now.not_captured)
    if now.rewritten:
        yield _rewritten(now.rewritten)


def _not_captured(tables: dict[str, str]) -> Table:
    table = words.table("not captured", "why")
    for name, reason in sorted(tables.items()):
        table.add_row(Text(name, "yellow"), reason)
    return table


def _rewritten(found: Sequence[Rewritten]) -> Table:
    table = words.table("rewritten without events", "columns", "after", "what to do")
    for each in found:
        table.add_row(Text(each.table, "yellow"), each.why, _position(each.from_lsn), each.remedy)
    return table


def _reader(slot: Slot) -> str:
    if slot.active_pid is None:
        return "nobody"
    return f"{slot.holder or 'a program'} (pid {slot.active_pid})"


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


def _lag(now: Status) -> str:
    if now.lag_seconds is None:
        return "-"
    return f"{now.lag_seconds:,.1f} s" if now.lag_seconds else "none"


def _rate(rate: float | None, noun: str) -> str:
    return "-" if rate is None else f"{rate:,.0f} {noun}s/s"


def _position(position: int | None) -> str:
    return "-" if position is None else lsn.show(position)
