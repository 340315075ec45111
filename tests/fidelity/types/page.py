"""Writes the table of docs/reference/types.md: `python -m tests.fidelity.types.page`."""

from __future__ import annotations

from collections.abc import Iterator

from tests.fidelity.types import cases
from tests.fidelity.types.cases import Case
from tests.fixtures.generated import DOCS, GeneratedPart

PART = GeneratedPart(DOCS / "reference/types.md", "tests/fidelity/types/page.py")
_LONGEST = 60


def table() -> str:
    """One line for each type, whatever the number of its cases."""
    lines = ["| type | in `record` | for example | Postgres |", "|---|---|---|---|"]
    for title, group in cases.GROUPS.items():
        lines += [f"| **{title}** | | | |", *_lines(group)]
    return "\n".join(lines) + "\n"


def _lines(group: tuple[Case, ...]) -> Iterator[str]:
    for name in dict.fromkeys(case.type for case in group):
        case = next(case for case in group if case.type == name)
        shown = name.removeprefix("public.")
        yield f"| {_code(shown)} | {case.form} | {_code(case.in_record())} | {'15' if case.needs else '15, 18'} |"


def _code(text: str) -> str:
    """As code in a table; what is longer than a line of it is cut."""
    shortened = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    escaped = shortened.replace("|", "\\|")
    return f"`` {escaped} ``" if "`" in escaped else f"`{escaped}`"


if __name__ == "__main__":
    PART.write(table())
