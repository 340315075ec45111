"""Prints exports: their status, runs, ranges and files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from rich.console import Group
from rich.table import Table

from pipeline.cli.render import backfills
from pipeline.exports.ledger import Export, File, Run, UnexchangedFolder
from pipeline.operate import formatting
from pipeline.operate.export_status import ExportStatus
from pipeline.operate.formatting import Text
from pipeline.operate.snapshot_status import SnapshotStatus

_STYLES = {"done": "green", "committed": "green", "running": "yellow", "writing": "yellow", "publishing": "yellow"}


def summary(now: ExportStatus) -> Table:
    """For `status`: a few lines, none of which looks like an error while exports are off."""
    return formatting.facts(_facts(now))


def _facts(now: ExportStatus) -> Iterator[tuple[object, object, object]]:
    yield "exports", "off" if now.off else now.schedule, now.off or _next(now.next_run)
    if now.problem:
        yield "", Text("cannot run", "bold red"), Text(now.problem)
    if now.exported_seq is not None:
        behind = f"{formatting.count(now.behind_seqs, 'seq')} behind" if now.behind_seqs else "nothing is new"
        yield "lake", f"seq {now.exported_seq}, {behind}", now.directory
    if now.last_run:
        yield "last run", _state(now.last_run.state), _last_run(now.last_run)
    if now.waiting and now.waiting_since:
        tables = f"{formatting.count(now.waiting, 'large table')} without the newest changes"
        since = f"the oldest for {formatting.since(now.waiting_since)}, as of seq {now.waiting_seq}"
        yield "current states", tables, f"{since}; see PIPELINE_EXPORT_LATEST_AGE"
    if now.without_state and not now.off:
        yield "no current state", ", ".join(now.without_state), "changes only: without a key rows cannot be told apart"
    for each in now.hidden if not now.off else ():
        yield "no current state", f"{each.table_name}, from {each.events_table}", each.reason


def show_exports(
    found: Sequence[Export],
    runs: Sequence[Run],
    now: SnapshotStatus | None = None,
    unexchanged: Sequence[UnexchangedFolder] = (),
) -> None:
    """Print ranges, then runs, the newest first, of which tables the lake lacks something as the log does, and folders
    that the file system does not exchange."""
    if not found and not runs:
        formatting.show("nothing was exported yet")
        return
    lacking = backfills.incomplete(now) if now else ()
    stay = map(_unexchanged, unexchanged)
    formatting.show(_ranges(found) if found else None, _runs(runs) if runs else None, *lacking, *stay)


def _unexchanged(each: UnexchangedFolder) -> Text:
    if each.folder is None:
        what = f"{each.directory}: the file system cannot exchange two folders ({each.reason})"
        return Text(f"{what}; changes and messages keep small files, and latest is a link")
    return Text(f"{each.directory}/{each.folder} keeps its files: the file system cannot exchange it ({each.reason})")


def show_export(found: Export, files: Sequence[File]) -> None:
    """Print one range and its files."""
    where = formatting.dim(f"in {found.directory}, by {found.holder}")
    formatting.show(Group(_ranges([found]), where), _files(files) if files else None)


def _files(found: Sequence[File]) -> Table:
    return formatting.table(
        ("file", "rows", "size", "seqs", "sha256"),
        (
            (
                file.path,
                formatting.whole(file.rows),
                formatting.size(file.bytes),
                f"{file.first_seq} to {file.last_seq}",
                formatting.dim(file.sha256),
            )
            for file in found
        ),
    )


def _ranges(found: Sequence[Export]) -> Table:
    columns = ("export", "seqs", "state", "rows", "files", "size", "took", "begun", "run", "reason")
    return formatting.table(columns, map(_range, found))


def _range(each: Export) -> list[object]:
    return [
        each.id,
        f"{each.after_seq + 1} to {each.upto_seq}",
        _state(each.state),
        formatting.whole(each.rows),
        each.files,
        formatting.size(each.bytes),
        formatting.lasted(each.seconds),
        each.started_at,
        each.run_id,
        each.reason or "",
    ]


def _runs(found: Sequence[Run]) -> Table:
    return formatting.table(
        ("run", "by", "state", "took", "begun", "log", "reason"),
        (
            (
                run.id,
                run.trigger,
                _state(run.state),
                formatting.lasted(run.seconds),
                run.started_at,
                run.log,
                run.reason or "",
            )
            for run in found
        ),
    )


def _last_run(run: Run) -> Text:
    when = f"run {run.id} by {run.trigger}, {formatting.since(run.started_at)} ago"
    text = formatting.dim(when + ("" if run.seconds is None else f", {formatting.lasted(run.seconds)}"))
    return text.line(run.reason, "not dim") if run.reason else text


def _state(state: str) -> Text:
    return Text(state, _STYLES.get(state, "bold red"))


def _next(when: datetime | None) -> str:
    return (
        f"next run in {formatting.ago((when - datetime.now(UTC)).total_seconds())}"
        if when
        else "no server runs its schedule"
    )
