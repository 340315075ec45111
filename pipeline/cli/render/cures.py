"""Prints the SQL that cures findings: statements alone on standard output, so that psql can read them."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pipeline.findings import CheckFinding
from pipeline.printable import say, sql
from pipeline.terminal import drawing

_PLACES = {"source": "the source", "pipeline": "the pipeline database"}


def show(found: Sequence[CheckFinding], at: str | None) -> int:
    """Print the statements for `at`, or for both databases. Return the exit status: 1 if an error has no SQL cure.

    Those errors, and what the reader should know, go to standard error.
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
            print(f"{sql(statement) if sys.stdout.isatty() else statement};")  # who copies from a terminal copies this
    if len(used) > 1:
        say("these are for two databases: print each with --at source, and --at pipeline", file=sys.stderr)
    left = [each for each in found if each.level == "error" and not each.cure]
    if left:
        say(f"{drawing.count(len(left), 'error')} that no SQL cures:", file=sys.stderr)
    for each in left:
        say(f"  {each.name}: {each.text}" + (f"; {each.remedy}" if each.remedy else ""), file=sys.stderr)
    return 1 if left else 0
