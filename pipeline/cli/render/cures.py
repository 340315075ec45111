"""Prints the SQL that cures findings. Standard output has only the statements, so that psql can read them."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pipeline.findings import CheckFinding
from pipeline.printable import say, sql
from pipeline.terminal import drawing

_PLACES = {"source": "the source", "pipeline": "the pipeline database"}


def show(found: Sequence[CheckFinding], at: str | None) -> int:
    """Print the statements for the database `at`; None: for both databases.

    Advice to the user, and errors that SQL cannot fix, go to standard error. Returns the exit status: 1 if there are
    such errors.
    """
    wanted = {
        place: list(dict.fromkeys(text for each in found if each.cure and each.cure.at == place for text in each.sql))
        for place in _PLACES
        if at in (None, place)
    }
    notes = {
        place: list(
            dict.fromkeys(note for each in found if each.cure and each.cure.at == place for note in each.cure.notes)
        )
        for place in wanted
    }
    used = [place for place, statements in wanted.items() if statements]
    for place in used:
        if len(used) > 1:
            say(f"-- at {_PLACES[place]}")
        say(*(f"-- {note}" for note in notes[place]))  # psql would run what stands behind a line break
        for statement in wanted[place]:
            print(
                f"{sql(statement) if sys.stdout.isatty() else statement};"
            )  # a user may copy this line from the terminal
    if len(used) > 1:
        say("these statements are for two databases: use --at source or --at pipeline to print one", file=sys.stderr)
    left = [each for each in found if each.level == "error" and not each.cure]
    if left:
        say(f"{drawing.count(len(left), 'error')} that SQL cannot fix:", file=sys.stderr)
    for each in left:
        say(f"  {each.name}: {each.text}" + (f"; {each.remedy}" if each.remedy else ""), file=sys.stderr)
    return 1 if left else 0
