"""The parts of docs/reference/follower-outcomes.md that are written from kinds of tables, and from DDL at the source.

`python -m tests.fidelity.follower_page` writes them; tests/fidelity/tables/test_table_kinds.py and the tests beside
tests/integration/followers/schema_changes/cases.py prove them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from tests.fidelity.tables.case import AtFollower, Kind
from tests.fidelity.tables.page import GROUPS, KINDS
from tests.fixtures.generated import DOCS, GeneratedPart
from tests.integration.followers.schema_changes import cases
from tests.integration.followers.schema_changes.cases import Change, Stop

_PAGE = DOCS / "reference/follower-outcomes.md"
KINDS_PART = GeneratedPart(_PAGE, "tests/fidelity/tables")
DDL_PART = GeneratedPart(_PAGE, "tests/integration/followers/schema_changes")
_TABLES = {
    **cases.TABLES,
    "dropped": cases.DROPPED,
    "names exchanged": cases.EXCHANGED,
    "a column of a partitioned table, where partitions have other column numbers": cases.PARTITIONED,
}
_VERIFIED = {
    "differs": "`verify` says that {} differs",
    "equal": "`verify` says that {} is equal, as it is published",
    "refused": "`verify` refuses {}",
    "refused, and it is equal": "`verify` refuses {}, whose key has a type of a user",
    None: "it has no {}",
}


def kinds() -> str:
    """Each kind of table, and then where a follower stops on the way."""
    parts = []
    for title, group in GROUPS.items():
        parts += [f"### {title}", "", "| table | a follower has |", "|---|---|"]
        parts += [*(f"| {kind.name} | {_outcome(kind.follower)} |" for kind in group), ""]
    parts += [
        "### Where it stops",
        "",
        "| table | it says | what to do, it says | it goes on after |",
        "|---|---|---|---|",
    ]
    return "\n".join([*parts, *(line for kind in KINDS for line in _stops(kind))])


def _outcome(follower: AtFollower) -> str:
    said = [
        text.format(" and ".join(f"`{table}`" for table in tables))
        for state, text in _VERIFIED.items()
        if (tables := [table for table, verified in follower.differs.items() if verified == state])
    ]
    stops = " ([it says](#where-it-stops))" if follower.stops else ""
    return "; ".join([follower.says + stops, *said])


def _stops(kind: Kind) -> Iterator[str]:
    for stop in kind.follower.stops:
        repaired = f"`{stop.repaired}`" if stop.repaired else "`resync`" if stop.resync else "nothing"
        yield f"| {kind.name} | {stop.reason} | {stop.remedy} | {repaired} |"


def ddl() -> str:
    """Changes that are followed, and those that stop a follower."""
    parts = ["### Columns and keys", "", *_changes(cases.COLUMNS_AND_KEYS), ""]
    parts += ["### Rewrites", "", *_changes(cases.REWRITES), ""]
    parts += ["### Tables, names and types", "", *_changes(_TABLES), ""]
    parts += ["### DDL that stops it", "", *_stopped(cases.STOPS), ""]
    parts += ["### DDL that lets one table wait", "", *_stopped(cases.WAITS)]
    return "\n".join(parts)


def _changes(changes: Mapping[str, Change]) -> Iterator[str]:
    yield from ("| | at the source | at the follower |", "|---|---|---|")
    for title, change in changes.items():
        yield f"| {title} | {_shown(change.statements)} | {_became(change)} |"


def _became(change: Change) -> str:
    return change.outcome or ("copied again" if change.copied else "the same")


def _stopped(stops: Mapping[str, Stop]) -> Iterator[str]:
    yield from ("| | at the source | it says | what to do, it says |", "|---|---|---|---|")
    for title, stop in stops.items():
        yield f"| {title} | {_shown(stop.statements)} | {_named(stop.reason)} | {_named(stop.remedy)} |"


def _shown(statements: tuple[str, ...]) -> str:
    """DDL; of a row what makes the difference, where there is none."""
    each = [part.strip() for statement in statements for part in statement.split(";")]
    found = [part for part in each if re.match("alter|create|drop", part)] or each
    return "; ".join(f"`{_named(part)}`" for part in found)


def _named(text: str) -> str:
    return text.replace("$t", "orders").replace("$name", "NAME").replace("|", "\\|")


if __name__ == "__main__":
    KINDS_PART.write(kinds())
    DDL_PART.write(ddl())
