"""All kinds of tables, and the part of docs/reference/tables.md that is written from them.

`python -m tests.fidelity.tables.page` writes it; test_table_kinds.py proves it.
"""

from __future__ import annotations

from tests.fidelity.tables import columns, identities, keys, others, partitions, theirs, truncates
from tests.fidelity.tables.case import Kind
from tests.fixtures.generated import DOCS, GeneratedPart

PART = GeneratedPart(DOCS / "reference/tables.md", "tests/fidelity/tables")
MAJORS = (18, 16, 15)
"""The versions that the tests run on, newest first."""
GROUPS = {
    "What identifies a row": identities.CASES,
    "Keys": keys.CASES,
    "Partitions and children": partitions.CASES,
    "Columns": columns.CASES,
    "Truncates": truncates.CASES,
    "Other tables": others.CASES,
    "Publications that you made": theirs.CASES,
}
KINDS = tuple(kind for group in GROUPS.values() for kind in group)


def _majors(kind: Kind) -> str:
    return ", ".join(str(major) for major in MAJORS if kind.since <= major <= kind.upto)


def table() -> str:
    """The generated part."""
    parts = []
    for title, kinds in GROUPS.items():
        parts += [f"### {title}", "", "| table | the log has | Postgres |", "|---|---|---|"]
        parts += [*(f"| {kind.name} | {kind.has} | {_majors(kind)} |" for kind in kinds), ""]
    return "\n".join(parts)


if __name__ == "__main__":
    PART.write(table())
