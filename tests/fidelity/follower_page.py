"""The parts of docs/reference/follower-outcomes.md that are written from kinds of tables, and from DDL at the source.

`python -m tests.fidelity.follower_page` writes them; tests/fidelity/tables/test_table_kinds.py and the tests beside
tests/integration/followers/schema_changes/cases.py prove them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pipeline.followers.copying.refusals import AGAIN
from tests.fidelity.tables.case import AtFollower, Kind
from tests.fidelity.tables.page import KINDS
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
    "a column of a partitioned table, if partitions have other column numbers": cases.PARTITIONED,
}
_VERIFIED = {
    "differs": "`verify` says that {} differs",
    "equal": "`verify` says that {} is equal, as it is published",
    "refused": "`verify` refuses {}",
    "refused, and it is equal": "`verify` refuses {}, whose key has a type of a user",
    None: "it has no {}",
}
_LONGEST_CELL = 25
"""Words of a cell; the end of a longer text is left out."""


def kinds() -> str:
    """Kinds of tables that are not equal, and then where a follower stops on the way."""
    rows = [f"| {kind.name} | {outcome} |" for kind in KINDS if (outcome := _outcome(kind.follower)) != "equal"]
    stops = [line for kind in KINDS for line in _stops(kind)]
    return "\n".join(
        [
            *("| table | a follower has |", "|---|---|", *rows),
            *("", "### If it stops", "", "| table | it says | what to do | it continues after |", "|---|---|---|---|"),
            *stops,
        ]
    )


def _outcome(follower: AtFollower) -> str:
    said = [
        text.format(" and ".join(f"`{table}`" for table in tables))
        for state, text in _VERIFIED.items()
        if (tables := [table for table, verified in follower.differs.items() if verified == state])
    ]
    stops = " ([it says](#if-it-stops))" if follower.stops else ""
    return "; ".join([follower.says + stops, *said])


def _stops(kind: Kind) -> Iterator[str]:
    for stop in kind.follower.stops:
        repaired = f"`{stop.repaired}`" if stop.repaired else "`resync`" if stop.resync else "nothing"
        yield f"| {kind.name} | {_said(stop.reason)} | {_said(stop.remedy)} | {repaired} |"


def ddl() -> str:
    """Changes that are followed, and those that stop a follower."""
    parts = ["### Columns and keys", "", *_changes(cases.COLUMNS_AND_KEYS), ""]
    parts += ["### Rewrites", "", *_changes(cases.REWRITES), ""]
    parts += ["### Tables, names and types", "", *_changes(_TABLES), ""]
    parts += ["### DDL that stops it", "", *_stopped({**cases.STOPS, **cases.WAITS})]
    return "\n".join(parts)


def _changes(changes: Mapping[str, Change]) -> Iterator[str]:
    yield from ("| | at the source | at the follower |", "|---|---|---|")
    for title, change in changes.items():
        yield f"| {title} | {_shown(change.statements)} | {_became(change)} |"


def _became(change: Change) -> str:
    return change.outcome or ("copied again" if change.copied else "the same")


def _stopped(stops: Mapping[str, Stop]) -> Iterator[str]:
    yield from ("| | at the source | it says | what to do |", "|---|---|---|---|")
    for title, stop in stops.items():
        yield f"| {title} | {_shown(stop.statements)} | {_said(_named(stop.reason))} | {_said(_named(stop.remedy))} |"


def _shown(statements: tuple[str, ...]) -> str:
    """DDL without `alter table orders`; if there is none, the changes of rows that make the difference."""
    each = [part.strip() for statement in statements for part in statement.split(";")]
    found = [part for part in each if re.match("alter|create table|drop", part)] or each
    return "; ".join(f"`{_named(part.removeprefix('alter table $t '))}`" for part in found)


def _said(text: str) -> str:
    """The text without what every stop says, up to the last clause that a cell has room for."""
    text = re.sub(r"^table public\.\w+ of the follower stops: ", "", text.removesuffix(AGAIN)).rstrip("; ")
    if len(text.split()) > _LONGEST_CELL:
        clauses = [found.start() for found in re.finditer(r"[:;,] (?=([^`]*`[^`]*`)*[^`]*$)", text)]
        text = next(f"{text[:end]} …" for end in reversed(clauses) if len(text[:end].split()) < _LONGEST_CELL)
    return text or "as it says"


def _named(text: str) -> str:
    return text.replace("$t", "orders").replace("$name", "NAME").replace("|", "\\|")


if __name__ == "__main__":
    KINDS_PART.write(kinds())
    DDL_PART.write(ddl())
