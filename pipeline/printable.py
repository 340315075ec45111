"""Text for people, in which no name of others can forge a line, move the cursor, or hide what comes after it.

Names of tables, slots and clients may hold line breaks, escape sequences of terminals, and characters that turn the
direction of text. They are escaped once, where text leaves the program: in the text log, and in what a command prints.
JSON needs none of this. Pure: no database.
"""

from __future__ import annotations

import json
import re
import sys
from typing import TextIO

_QUOTED = re.compile(r""""(?:[^"]|"")*"|\bE'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'""", re.DOTALL)

_LITERAL = re.compile(rf"(?<![\w$])\$(?P<tag>(?:[^\W\d]\w*)?)\$(?P<body>.*?)\$(?P=tag)\$|{_QUOTED.pattern}", re.DOTALL)

_RESERVED = frozenset(
    re.findall(
        r"\w+",
        """all analyse analyze and any array as asc asymmetric authorization binary both case cast check collate
        collation column concurrently constraint create cross current_catalog current_date current_role current_schema
        current_time current_timestamp current_user default deferrable desc distinct do else end except false fetch for
        foreign freeze from full grant group having ilike in initially inner intersect into is isnull join lateral
        leading left like limit localtime localtimestamp natural not notnull null offset on only or order outer overlaps
        placing primary references returning right select session_user similar some symmetric system_user table
        tablesample then to trailing true union unique user using variadic verbose when where window with""",
    )
)
"""Words that Postgres takes for a name only in quotes."""


def escaped(text: str) -> str:
    """Return the text with each character that is not printable written as in Python: a line break as \\n."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def say(*lines: object, file: TextIO | None = None) -> None:
    """Print each in a line of its own, whatever is in it; at once, to standard output by default."""
    for line in lines:
        print(escaped(str(line)), file=file or sys.stdout, flush=True)


def below(text: str) -> str:
    """Return text of many lines, such as a traceback, each one indented: none of them looks like a line of the log."""
    return "\n".join(f"    {escaped(line)}" for line in text.split("\n"))


def in_json(text: str) -> str:
    """Return JSON that means the same, in printable characters: only in its strings are there others."""
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def in_comment(text: str) -> str:
    """Return a name or a statement for a comment of printed SQL: JSON in ASCII, so that it cannot end the comment."""
    return json.dumps(text)


def identifier(*names: str) -> str:
    """Return the SQL that is exactly this name, in one printable line; of several, the name with its schema."""
    return sql(".".join('"' + name.replace('"', '""') + '"' for name in names))


def shortest(*names: str) -> str:
    """Return the same without quotes where Postgres needs none."""
    plain = all(re.fullmatch(r"[a-z_][a-z0-9_]*", name) and name not in _RESERVED for name in names)
    return ".".join(names) if plain else identifier(*names)


def sql(text: str) -> str:
    """Return SQL that means the same, and has only printable characters in its quoted names and strings.

    For SQL among text that people read, and that `escaped` leaves alone.
    """
    return _QUOTED.sub(lambda found: found[0] if found[0].isprintable() else _unicode(found[0]), text)


def sql_in_one_line(text: str) -> str:
    """Return SQL that means the same in one printable line: the definition of a function, which has no comments.

    Its body, which may have some, becomes a string.
    """

    def printed(found: re.Match[str]) -> str:
        body = found["body"]
        quoted = found[0] if body is None else "'" + body.replace("'", "''") + "'"
        return found[0] if found[0].isprintable() else _unicode(quoted)

    return re.sub(r" *[\t-\r]\s*", " ", _LITERAL.sub(printed, text))


def _unicode(quoted: str) -> str:
    literal = quoted if quoted.startswith("E") else quoted.replace("\\", "\\\\")
    if quoted.startswith('"'):
        return "U&" + _points(literal, "\\{:04x}", "\\+{:06x}")
    return ("" if quoted.startswith("E") else "E") + _points(literal, "\\u{:04x}", "\\U{:08x}")


def _points(text: str, short: str, long: str) -> str:
    return "".join(c if c.isprintable() else (short if ord(c) < 0x10000 else long).format(ord(c)) for c in text)
