"""What people read of the exports: where they stand, runs, ranges, files."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from rich.table import Table
from rich.text import Text

from pipeline.exports.ledger import Export, File, Run
from pipeline.operations import words
from pipeline.operations.export_status import Exports

_STYLES = {"done": "green", "committed": "green", "running": "yellow", "writing": "yellow", "publishing": "yellow"}


def standing(now: Exports) -> Table:
    """For `status`: a few lines, and nothing that looks like an error while exports are off."""
    table = words.table("", "", "")
    when = "off" if now.off else now.schedule
    following = now.off or (f"next run in {_until(now.next_run)}" if now.next_run else "")
    table.add_row(Text("exports", "dim"), when, Text(following, "dim"))
    if now.problem:
        table.add_row("", Text("cannot run", "bold red"), now.problem)
    if now.exported_seq is not None:
        behind = f"{words.count(now.behind_seqs, 'seq')} behind" if now.behind_seqs else "nothing is new"
        table.add_row(Text("lake", "dim"), f"seq {now.exported_seq}, {behind}", Text(now.directory, "dim"))
    if now.last_run:
        table.add_row(Text("last run", "dim"), _state(now.last_run.state), _told(now.last_run))
    if now.without_state and not now.off:
        names = ", ".join(now.without_state)
        table.add_row(
            Text("no current state", "dim"), names, Text("changes only: no key says which row is which", "dim")
        )
    return table


def exports(found: Sequence[Export], runs: Sequence[Run]) -> None:
    """Ranges, then runs, the newest first."""
    console = words.console()
    if not found and not runs:
        console.print("nothing was exported yet")
        return
    if found:
        console.print(_ranges(found))
    if found and runs:
        console.print()
    if runs:
        console.print(_runs(runs))


def export(found: Export, files: Sequence[File]) -> None:
    """One range and its files."""
    console = words.console()
    console.print(_ranges([found]))
    console.print(Text(f"in {found.directory}, by {found.holder}", "dim"))
    if not files:
        return
    table = words.table("file", "rows", "size", "seqs", "sha256")
    for file in files:
        seqs = f"{file.first_seq} to {file.last_seq}"
        table.add_row(file.path, f"{file.rows:,}", words.size(file.bytes), seqs, Text(file.sha256, "dim"))
    console.print()
    console.print(table)


def _ranges(found: Sequence[Export]) -> Table:
    table = words.table("export", "seqs", "state", "rows", "files", "size", "took", "begun", "run", "reason")
    for each in found:
        table.add_row(
            str(each.id),
            f"{each.after_seq + 1} to {each.upto_seq}",
            _state(each.state),
            words.whole(each.rows),
            str(each.files),
            words.size(each.bytes),
            words.lasted(each.seconds),
            _moment(each.started_at),
            "-" if each.run_id is None else str(each.run_id),
            each.reason or "",
        )
    return table


def _runs(found: Sequence[Run]) -> Table:
    table = words.table("run", "by", "state", "took", "begun", "log", "reason")
    for run in found:
        took, begun = words.lasted(run.seconds), _moment(run.started_at)
        table.add_row(str(run.id), run.trigger, _state(run.state), took, begun, run.log or "-", run.reason or "")
    return table


def _told(run: Run) -> Text:
    when = f"run {run.id} by {run.trigger}, {words.ago((datetime.now(UTC) - run.started_at).total_seconds())} ago"
    text = Text(when + ("" if run.seconds is None else f", {words.lasted(run.seconds)}"), "dim")
    return text.append(f"\n{run.reason}", "not dim") if run.reason else text


def _state(state: str) -> Text:
    return Text(state, _STYLES.get(state, "bold red"))


def _moment(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def _until(when: datetime) -> str:
    return words.ago((when - datetime.now(UTC)).total_seconds())
