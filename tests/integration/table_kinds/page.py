"""All kinds of tables, and the part of docs/fidelity.md that is written from them.

`python -m tests.integration.table_kinds.page` writes it; test_table_kinds.py proves it.
"""

from __future__ import annotations

from pathlib import Path

from tests.integration.table_kinds import columns, identities, keys, others, partitions, theirs, truncates
from tests.integration.table_kinds.case import Kind

DOC = Path(__file__).parents[3] / "docs" / "fidelity.md"
BEGIN, END = "<!-- begin: tests/integration/table_kinds -->\n", "<!-- end: tests/integration/table_kinds -->\n"
MAJORS = (18, 16, 15)
"""Proved on each, newest first."""
GROUPS = {
    "What identifies a row": identities.CASES,
    "Keys": keys.CASES,
    "Partitions and children": partitions.CASES,
    "Columns": columns.CASES,
    "Truncates": truncates.CASES,
    "Where, and what else": others.CASES,
    "Publications that you made": theirs.CASES,
}
KINDS = tuple(kind for group in GROUPS.values() for kind in group)


def _majors(kind: Kind) -> str:
    return ", ".join(str(major) for major in MAJORS if kind.since <= major <= kind.upto)


def table() -> str:
    """The generated part."""
    parts = []
    for title, kinds in GROUPS.items():
        parts += [f"### {title}", "", "| table | the log has | proved on |", "|---|---|---|"]
        parts += [*(f"| {kind.name} | {kind.has} | {_majors(kind)} |" for kind in kinds), ""]
    return "\n".join(parts)


def generated(text: str) -> str:
    """`text` of docs/fidelity.md with the tables as they should be."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table()}\n{END}{tail}"


if __name__ == "__main__":
    DOC.write_text(generated(DOC.read_text()))
