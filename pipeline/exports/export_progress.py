"""Prints the progress of an export: a bar on a terminal, a line now and then anywhere else."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.progress import BarColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from pipeline.config.bucket import LakeAt
from pipeline.exports.child import OnEvent, ScriptEvent
from pipeline.exports.compaction import CompactionResult
from pipeline.exports.job import ExportOutcome
from pipeline.printable import say
from pipeline.terminal import drawing
from pipeline.terminal.bars import TextColumn
from pipeline.terminal.drawing import EscapedConsole

STARTING_SPARK = "starting Spark"
_PLAIN_EVERY = 2.0
_NOT_SHOWN = frozenset({"event", "reason"})


class ScriptProgress:
    """The progress of a run, from its events. `rows`: exported so far; `part`: the share of the seqs, 0 to 1."""

    def __init__(self) -> None:
        self.doing = STARTING_SPARK
        self.rows = 0
        self.part = 0.0
        self.headline = ""
        self._before = 0
        self._began: float | None = None
        self._folding = False

    def add_event(self, event: ScriptEvent) -> None:
        """Take the next event; unknown kinds are shown as they are."""
        known = getattr(self, f"_on_{event['event']}", None)
        if known:
            known(event)
        else:
            self.doing = " ".join([str(event["event"]), *(f"{k} {v}" for k, v in event.items() if k not in _NOT_SHOWN)])

    @property
    def rate(self) -> float:
        """The rows a second since Spark started."""
        return self.rows / max(time.monotonic() - self._began, 0.001) if self._began else 0.0

    @property
    def remaining(self) -> float | None:
        """The seconds until the end at the rate so far; None if it is too early to tell."""
        if self._began is None or self.part <= 0.0:
            return None
        return (time.monotonic() - self._began) * (1 - self.part) / self.part

    def line(self) -> str:
        """The progress in one line."""
        parts = [self.doing]
        if self.rows and not self._folding:
            parts += [drawing.count(self.rows, "row"), drawing.rate(self.rate)]
        if self.remaining is not None and self.part < 1.0:
            parts.append(f"{drawing.lasted(self.remaining)} left")
        return ", ".join(parts)

    def _on_waiting(self, event: ScriptEvent) -> None:
        far = f"the lake is at seq {event['exported_upto']} of {event['head']}"
        self.doing = f"waiting for the export of {event['holder']}: {far}"

    def _on_begins(self, event: ScriptEvent) -> None:
        if "dataset" in event:
            self.headline = f"writing {event['dataset']} as of seq {event['seq']} to {event['output']}"
            return
        self.doing = STARTING_SPARK
        ranges = drawing.count(event["ranges"], "range")
        self.headline = f"exporting seq {event['after_seq'] + 1} to {event['upto_seq']} in {ranges}"
        if not event["ranges"]:
            self.headline = f"updating current states to what is exported, up to seq {event['after_seq']}"

    def _on_spark(self, _event: ScriptEvent) -> None:
        self._began = time.monotonic()
        self.doing = "Spark has started"

    def _on_progress(self, event: ScriptEvent) -> None:
        self.doing = f"range {event['range']} of {event['ranges']}"
        self.rows = self._before + event["done"]
        self._reach(event, event["range"] - 1 + event["done"] / max(1, event["rows"]))

    def _on_committed(self, event: ScriptEvent) -> None:
        self.doing = f"range {event['range']} of {event['ranges']} is in the lake up to seq {event['upto_seq']}"
        self.rows = self._before = event["rows"]
        self._reach(event, event["range"])

    def _on_state(self, event: ScriptEvent) -> None:
        self._folding = True
        made = f"{drawing.count(event['rows'], 'row')}, {event['rewritten']} of {event['buckets']} buckets rewritten"
        self.doing = f"{event['dataset']} as of seq {event['seq']}: {made}"

    def _on_compacted(self, event: ScriptEvent) -> None:
        self.doing = f"{drawing.count(event['files_before'], 'file')} became {event['files_after']}"

    def _on_set_aside(self, event: ScriptEvent) -> None:
        files = drawing.count(event["files"], "file")
        self.doing = self.headline = f"moved {files} that the log lost when it was restored to {event['folder']}"

    def _on_waits(self, event: ScriptEvent) -> None:
        self.doing = f"waiting: {event['reason']}"

    def _on_done(self, _event: ScriptEvent) -> None:
        self.doing, self.part = "done", 1.0

    def _on_failed(self, _event: ScriptEvent) -> None:
        self.doing = "failed"

    def _reach(self, event: ScriptEvent, ranges: float) -> None:
        self.part = min(1.0, ranges / max(1, event["ranges"]))


@contextmanager
def shown(first: str = STARTING_SPARK) -> Iterator[OnEvent]:
    """Yield a function that takes each event and prints the progress, which begins with the line `first`."""
    console = drawing.console()
    progress = ScriptProgress()
    progress.doing = first
    if not console.is_terminal:
        yield _plain(console, progress)
        return
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[pace]}"), TimeRemainingColumn()
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task(progress.doing, total=1.0, pace="")

        def tell(event: ScriptEvent) -> None:
            progress.add_event(event)
            if event["event"] in ("begins", "set_aside"):
                console.print(progress.headline)
            pace = f"{drawing.count(progress.rows, 'row')}, {drawing.rate(progress.rate)}" if progress.rows else ""
            bar.update(task, description=progress.doing, completed=progress.part, pace=pace)

        yield tell


def outcome(found: ExportOutcome, lake: LakeAt) -> None:
    """Print the result of a run, and its folder."""
    if found.run is None:
        say(f"nothing is new: everything up to seq {found.exported_upto} is in the lake {lake}")
        return
    moved = f"{drawing.count(found.rows, 'event')} in {drawing.lasted(found.seconds)}"
    say(f"run {found.run}: {moved}, everything up to seq {found.exported_upto} is in the lake {lake}")


def compacted(made: Sequence[CompactionResult]) -> None:
    """Print the results of compactions, by lake."""
    if not any(each.files_before for each in made):
        say("nothing to merge: no file is small, or none has waited for long enough")
    for each in made:
        if each.files_before:
            say(f"{drawing.count(each.files_before, 'file')} became {each.files_after} in the lake {each.lake}")


def state(table: str, last: ScriptEvent) -> None:
    """Print the result of `export state`."""
    rows = drawing.count(int(last.get("rows", 0)), "row")
    say(f"{table} as of seq {last.get('seq', '-')}: {rows} in {last.get('output', '-')}")


def _plain(console: EscapedConsole, progress: ScriptProgress) -> OnEvent:
    due, before = 0.0, progress.doing
    console.print(before)

    def tell(event: ScriptEvent) -> None:
        nonlocal due, before
        progress.add_event(event)
        if event["event"] == "begins":
            console.print(progress.headline)
            if before != progress.doing:
                before = progress.doing
                console.print(before)
        elif event["event"] not in ("progress", "done", "failed") or time.monotonic() >= due:
            line = progress.line()
            if line != before:
                due, before = time.monotonic() + _PLAIN_EVERY, line
                console.print(line)

    return tell
