"""How Sequin's clients get the values of each type, said without the code that makes them: proved by test_sequin.py.

`python -m tests.fidelity.types.sequin_forms` writes the table of docs/reference/sequin-values.md from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple

from tests.fidelity.types import cases
from tests.fidelity.types.cases import Case
from tests.fixtures.generated import DOCS, GeneratedPart

PART = GeneratedPart(DOCS / "reference/sequin-values.md", "tests/fidelity/types/sequin_forms.py")
_LONGEST = 60


class Form(NamedTuple):
    """What values are, and one as JSON."""

    name: str
    example: str


_ISO = "string in ISO 8601 with six digits; infinities, BC and years of five digits: as in `record`"
_INTERVAL = "object; infinities: string"
FORMS = {
    "real": Form("number, always with a point or exponent; `NaN` and infinities: string", "16777216.0"),
    "double precision": Form("the same", "1000000000000000.0"),
    "numeric": Form("string with all digits; with an exponent below a millionth", '"1.10"'),
    "numeric(12,2)": Form("the same", '"-9999999999.99"'),
    "numeric(5,-2)": Form("the same", '"9999900"'),
    "timestamp": Form(_ISO, '"2024-02-29T12:34:56.100000"'),
    "timestamptz": Form(f"{_ISO}; in UTC, with `Z`", '"2024-02-29T12:34:56.000001Z"'),
    "interval": Form(_INTERVAL, '{"months":-1,"days":1,"microseconds":-1}'),
    "json": Form("the document itself, as it was written", '{"b": 1, "a": [null]}'),
    "public.free_document": Form("as json", '{"a":1}'),
    "public.positive": Form("as its base type", "1"),
    "public.small_positive": Form("as its innermost base type", "99"),
    "public.integers": Form("array", "[1,null]"),
    "public.moods": Form("array", '["sad","so so",null]'),
}
"""Of types whose values are not as in `record`, see docs/reference/types.md."""

_WHOLE = ("smallint", "integer", "bigint", "oid")
_FLOATS = ("real", "double precision")
_DOCUMENTS = ("json", "jsonb")
_OVER = {
    "public.positive": "integer",
    "public.small_positive": "integer",
    "public.free_document": "json",
    "public.document": "jsonb",
    "public.object": "jsonb",
}
"""Domains; an array of them is an array of texts."""


def of(case: Case) -> Form:
    """The form of a type's values."""
    return FORMS.get(case.type) or Form(case.form, case.in_record())


def scalar(type_name: str, text: str, intervals: dict[str, Any]) -> str:
    """JSON of a value, from its text. `intervals`: months, days and microseconds of each, as Postgres counts them."""
    return element(_OVER.get(type_name, type_name), text, intervals)


def element(type_name: str, text: str, intervals: dict[str, Any]) -> str:
    """The same of an element of an array."""
    if type_name in _WHOLE or type_name in _DOCUMENTS:
        return text
    if type_name == "boolean":
        return {"t": "true", "f": "false"}[text]
    return json.dumps(_value(type_name, text, intervals), ensure_ascii=False)


def _value(type_name: str, text: str, intervals: dict[str, Any]) -> Any:
    if text in ("NaN", "Infinity", "-Infinity", "infinity", "-infinity"):
        return text
    if type_name in _FLOATS:
        return float(text)
    if type_name.startswith("numeric"):
        return str(Decimal(text))
    if type_name in ("timestamp", "timestamptz"):
        return _iso(text)
    if type_name == "interval":
        return intervals[text]
    return text


def _iso(text: str) -> str:
    try:
        return datetime.fromisoformat(text).isoformat(timespec="microseconds").replace("+00:00", "Z")
    except ValueError:
        return text


def table() -> str:
    """One line for each type."""
    lines = ["| type | clients get | for example |", "|---|---|---|"]
    lines.append("| arrays of each type | arrays; nested if they have several dimensions | `[[1,null],[2,3]]` |")
    for title, group in cases.GROUPS.items():
        lines += [f"| **{title}** | | |", *_lines(group)]
    return "\n".join(lines) + "\n"


def _lines(group: tuple[Case, ...]) -> Iterator[str]:
    for name in dict.fromkeys(case.type for case in group):
        form = of(next(case for case in group if case.type == name))
        yield f"| {_code(name.removeprefix('public.'))} | {form.name} | {_code(form.example)} |"


def _code(text: str) -> str:
    shortened = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    escaped = shortened.replace("|", "\\|")
    return f"`` {escaped} ``" if "`" in escaped else f"`{escaped}`"


if __name__ == "__main__":
    PART.write(table())
