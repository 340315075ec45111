"""Prints exports: their status, runs, ranges and files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from rich.console import Group
from rich.table import Table

from pipeline.exports.ledger import ExportFile, ExportRange, ExportRun, UnexchangedFolder
from pipeline.exports.status import ExportStatus
from pipeline.snapshots import render
from pipeline.snapshots.snapshot_status import SnapshotStatus
from pipeline.terminal import drawing
from pipeline.terminal.drawing import EscapedText

_STYLES = {
    "done": "green",
    "committed": "green",
    "running": "yellow",
    "stopped": "yellow",
    "writing": "yellow",
    "publishing": "yellow",
}


def summary(now: ExportStatus) -> Table:
    """Return a few lines for `status`. If exports are off, none of them looks like an error."""
    return drawing.facts(_facts(now))


def problems(now: ExportStatus, *, failure_is_shown: bool = False) -> Iterator[Table]:
    """Yield a table for `status` if exports cannot run, the last one failed, or current states are not up to date.

    `failure_is_shown`: True if the status already says why the last one failed.
    """
    rows = [*_cannot_run("exports", now), *_waiting(now)]
    if now.last_run and now.last_run.state == "failed" and not (now.off or failure_is_shown):
        rows.append(("last export", _state(now.last_run.state), _last_run(now.last_run)))
    if rows:
        yield drawing.facts(rows)


def _facts(now: ExportStatus) -> Iterator[tuple[object, object, object]]:
    yield "exports", "off" if now.off else now.schedule, now.off or _next(now.next_run)
    yield from _cannot_run("", now)
    if now.exported_seq is not None:
        behind = f"{drawing.count(now.behind_seqs, 'seq')} behind" if now.behind_seqs else "nothing is new"
        yield "lake", f"seq {now.exported_seq}, {behind}", now.directory
    if now.last_run:
        yield "last run", _state(now.last_run.state), _last_run(now.last_run)
    yield from _waiting(now)
    if now.without_state and not now.off:
        yield "no current state", ", ".join(now.without_state), "changes only: a row has no key to identify it"
    for each in now.hidden if not now.off else ():
        yield "no current state", f"{each.table_name}, from {each.events_table}", each.reason


def _cannot_run(label: str, now: ExportStatus) -> Iterator[tuple[object, object, object]]:
    if now.problem:
        yield label, EscapedText("cannot run", "bold red"), EscapedText(now.problem)


def _waiting(now: ExportStatus) -> Iterator[tuple[object, object, object]]:
    if now.waiting and now.waiting_since:
        tables = f"{drawing.count(now.waiting, 'large table')} without the newest changes"
        since = f"the oldest for {drawing.since(now.waiting_since)}, as of seq {now.waiting_seq}"
        yield "current states", tables, f"{since}; see PIPELINE_EXPORT_LATEST_AGE"


def show_exports(
    found: Sequence[ExportRange],
    runs: Sequence[ExportRun],
    now: SnapshotStatus | None = None,
    unexchanged: Sequence[UnexchangedFolder] = (),
) -> None:
    """Print ranges, then runs, both the newest first.

    Tables of which log and lake lack values, and folders that the file system cannot exchange, follow."""
    if not found and not runs:
        drawing.show("nothing was exported yet")
        return
    lacking = render.incomplete(now) if now else ()
    stay = map(_unexchanged, unexchanged)
    drawing.show(_ranges(found) if found else None, _runs(runs) if runs else None, *lacking, *stay)


def _unexchanged(each: UnexchangedFolder) -> EscapedText:
    if each.folder is None:
        what = f"{each.directory}: the file system cannot exchange two folders ({each.reason})"
        return EscapedText(f"{what}; small files of changes and messages are not merged, and latest is a symlink")
    return EscapedText(
        f"{each.directory}/{each.folder} keeps its files: the file system cannot exchange it ({each.reason})"
    )


def show_export(found: ExportRange, files: Sequence[ExportFile]) -> None:
    """Print one range and its files."""
    where = drawing.dim(f"in {found.directory}, by {found.holder}")
    drawing.show(Group(_ranges([found]), where), _files(files) if files else None)


def _files(found: Sequence[ExportFile]) -> Table:
    return drawing.table(
        ("file", "rows", "size", "seqs", "sha256"),
        (
            (
                file.path,
                drawing.whole(file.rows),
                drawing.size(file.bytes),
                f"{file.first_seq} to {file.last_seq}",
                drawing.dim(file.sha256),
            )
            for file in found
        ),
    )


def _ranges(found: Sequence[ExportRange]) -> Table:
    columns = ("export", "seqs", "state", "rows", "files", "size", "took", "begun", "run", "reason")
    return drawing.table(columns, map(_range, found))


def _range(each: ExportRange) -> list[object]:
    return [
        each.id,
        f"{each.after_seq + 1} to {each.upto_seq}",
        _state(each.state),
        drawing.whole(each.rows),
        each.files,
        drawing.size(each.bytes),
        drawing.lasted(each.seconds),
        each.started_at,
        each.run_id,
        each.reason or "",
    ]


def _runs(found: Sequence[ExportRun]) -> Table:
    return drawing.table(
        ("run", "by", "state", "took", "begun", "log", "reason"),
        (
            (
                run.id,
                run.trigger,
                _state(run.state),
                drawing.lasted(run.seconds),
                run.started_at,
                run.log,
                run.reason or "",
            )
            for run in found
        ),
    )


def _last_run(run: ExportRun) -> EscapedText:
    when = f"run {run.id} by {run.trigger}, {drawing.since(run.started_at)} ago"
    text = drawing.dim(when + ("" if run.seconds is None else f", {drawing.lasted(run.seconds)}"))
    return text.line(run.reason, "not dim") if run.reason else text


def _state(state: str) -> EscapedText:
    return EscapedText(state, _STYLES.get(state, "bold red"))


def _next(when: datetime | None) -> str:
    return (
        f"next run in {drawing.ago((when - datetime.now(UTC)).total_seconds())}"
        if when
        else "no server runs its schedule"
    )
