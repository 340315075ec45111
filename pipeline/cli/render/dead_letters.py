"""Prints dead letters, for `pipeline dead-letters` and `status`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from pipeline.log.dead_letters import DeadLetter
from pipeline.operate.repair.retry_dead_letters import RetryOutcome
from pipeline.terminal import drawing


def show_dead_letters(found: Sequence[DeadLetter]) -> None:
    """Print each dead letter with its place, cause and state."""
    columns = ("id", "state", "table", "action", "key", "place", "attempts", "cause")
    drawing.show(drawing.table(columns, map(_line, found)) if found else "no dead letters")


def _line(each: DeadLetter) -> list[object]:
    return [
        each.id,
        each.state,
        each.table,
        each.action,
        each.record_pk or None,
        f"({drawing.position(each.commit_lsn)}, {each.commit_idx})",
        each.attempts,
        f"{each.cause} ({each.sqlstate})",
    ]


def show_retried(outcome: RetryOutcome) -> None:
    """Print the result of a retry, or which server will run it."""
    console = drawing.console()
    done = len(outcome.letters) - outcome.waiting - outcome.failed
    if not outcome.letters:
        console.print("no dead letters are parked")
    if done:
        console.print(f"{drawing.count(done, 'dead letter')} written at the head of the log")
    if outcome.failed:
        console.print(f"{drawing.count(outcome.failed, 'dead letter')} failed again and stay parked")
        show_dead_letters([each for each in outcome.letters if each.state == "parked"])
    if outcome.waiting:
        who = (
            f"the shuffler of {outcome.server} will write them"
            if outcome.server
            else "`pipeline serve` will write them when it next starts"
        )
        console.print(f"{drawing.count(outcome.waiting, 'dead letter')} marked for a retry: {who}")


def summary(counts: Mapping[str, int]) -> Table:
    """Return the line of `status` about dead letters."""
    shown = ", ".join(f"{number:,} {state}" for state, number in counts.items() if number)
    return drawing.table(("", "", ""), [("dead letters", shown, "`pipeline dead-letters list` shows them")])
