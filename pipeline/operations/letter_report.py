"""What `pipeline dead-letters` and `status` print of dead letters, and of a source that cannot send a transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from pipeline.deliveries.dead_letters import Letter
from pipeline.operations import words
from pipeline.operations.retries import Outcome
from pipeline.wal import lsn


def letters(found: Sequence[Letter]) -> None:
    """Each with its place, cause and state."""
    console = words.console()
    if not found:
        console.print("no dead letters")
        return
    table = words.table("id", "state", "table", "action", "key", "place", "attempts", "cause")
    for each in found:
        place = f"({lsn.show(each.commit_lsn)}, {each.commit_idx})"
        cause = f"{each.cause} ({each.sqlstate})"
        key = each.record_pk or "-"
        table.add_row(str(each.id), each.state, each.table, each.action, key, place, str(each.attempts), cause)
    console.print(table)


def retried(outcome: Outcome) -> None:
    """What came of it, or who will do it."""
    console = words.console()
    done = len(outcome.letters) - outcome.waiting - outcome.failed
    if not outcome.letters:
        console.print("no dead letters are parked")
    if done:
        console.print(f"{words.count(done, 'dead letter')} written at the head of the log")
    if outcome.failed:
        console.print(f"{words.count(outcome.failed, 'dead letter')} failed again and stay parked")
        letters([each for each in outcome.letters if each.state == "parked"])
    if outcome.waiting:
        who = (
            f"the shuffler of {outcome.server} is at it" if outcome.server else "the next `pipeline serve` writes them"
        )
        console.print(f"{words.count(outcome.waiting, 'dead letter')} noted: {who}")


def standing(counts: Mapping[str, int]) -> Table:
    """One line of `status`."""
    table = words.table("", "", "")
    shown = ", ".join(f"{number:,} {state}" for state, number in counts.items() if number)
    table.add_row("dead letters", shown, "`pipeline dead-letters list` shows them")
    return table
