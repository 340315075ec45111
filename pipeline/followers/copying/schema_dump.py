"""Reads tables of the source with `pg_dump`, as SQL that creates them elsewhere: tables first, then their indexes.

Foreign keys, triggers, rules, policies, rights and owners are left out. A follower does not have them, or could not
check them while its tables have the state of different moments.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
from psycopg import pq

from pipeline.errors import EmbeddedPostgresError, FollowerError
from pipeline.postgres import connections
from pipeline.postgres.embedded import wheel_bin_dir

SECONDS = 600
"""The time limit of `pg_dump`."""
LOCK_TIMEOUT = "5s"
_BEFORE = ("TABLE", "TABLE ATTACH", "SEQUENCE", "SEQUENCE OWNED BY", "DEFAULT", "CHECK CONSTRAINT")
_AFTER = ("CONSTRAINT", "INDEX", "INDEX ATTACH")
_NAME = "-- Name: "
_TOKEN = re.compile(
    r"""
    ^--\n--\ Name:\ (?P<label>[^\n]*?);\ Type:\ (?P<type>[A-Z ]+);\ Schema:\ (?P<schema>[^\n]*);\ Owner:[^\n]*\n--\n
    | ^(?P<setting>SET\ (?P<name>\w+)\ =\ [^\n]*;\n)
    | ^(?P<command>\\[^\n]*\n)
    | (?<!\w)[eE]'(?:[^'\\]|\\.|'')*'
    | '(?:[^']|'')*'
    | "(?:[^"]|"")*"
    | (?<![\w$])\$(?P<tag>\w*)\$.*?\$(?P=tag)\$
    | --[^\n]*
    """,
    re.MULTILINE | re.DOTALL | re.VERBOSE,
)
"""Matches each part of a dump that is not plain SQL: heads of entries, settings, psql commands, quotes, comments.

Within quotes, the owner of a table at the source may have written text that looks like any other part.
"""


@dataclass(frozen=True)
class DumpEntry:
    """Statements that create one object. `label`: its name, after the table's name if it is a part of a table."""

    schema: str
    label: str
    kind: str
    text: str

    @property
    def is_unvalidated(self) -> bool:
        """True if the entry adds a constraint that existing rows may violate. A key is never NOT VALID."""
        return self.kind == "CONSTRAINT" and self.text.rstrip().endswith(" NOT VALID;")


@dataclass(frozen=True)
class SchemaDump:
    """A dump of tables. `settings`: names of the settings of the dump, with the statements that set them."""

    settings: tuple[tuple[str, str], ...]
    entries: tuple[DumpEntry, ...]

    @property
    def before(self) -> str:
        """Statements that create the tables, with all of their checks."""
        return "".join(each.text for each in self.entries if each.kind in _BEFORE or each.is_unvalidated)

    @property
    def after(self) -> list[str]:
        """Statements that create the keys and indexes of the tables."""
        return [each.text for each in self.entries if each.kind in _AFTER and not each.is_unvalidated]

    def select(self, labels: Collection[tuple[str, str]]) -> SchemaDump:
        """Return a dump with only the entries of these schemas and labels."""
        return replace(self, entries=tuple(each for each in self.entries if (each.schema, each.label) in labels))

    def preamble(self, known: Iterable[str]) -> str:
        """Return the statements for the settings that a server knows. `known`: names of its settings."""
        names = set(known)
        return "".join(["SET search_path = '';\n", *(text for name, text in self.settings if name in names)])


def read(source: psycopg.Connection, dsn: str, tables: Sequence[str]) -> SchemaDump:
    """Dump these tables. `tables`: names, as the catalog quotes them. Raises FollowerError."""
    program = _program(source.info.server_version // 10000)
    arguments = ["--schema-only", "--no-owner", "--no-privileges", "--no-publications", "--no-subscriptions"]
    arguments += ["--no-tablespaces", f"--lock-wait-timeout={LOCK_TIMEOUT}"]
    wanted = [f"--table={table}".encode() for table in tables]
    try:
        done = subprocess.run(
            [program, *arguments, *wanted],
            env=_environment(dsn),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise FollowerError(f"--schema create: {program} does not run: {error}") from error
    if done.returncode != 0:
        said = "; ".join(line.strip() for line in done.stderr.splitlines() if line.strip())
        remedy = f"; {connections.GRANT_AT_SOURCE}" if "permission denied" in said else ""
        raise FollowerError(f"--schema create: pg_dump cannot read the source's tables: {said}{remedy}")
    return parse(done.stdout)


def parse(text: str) -> SchemaDump:
    """Split a plain dump into its entries. Raises FollowerError."""
    settings = list[tuple[str, str]]()
    entries = tuple(_entries(text, settings))
    return SchemaDump(tuple(settings), entries)


def _entries(text: str, settings: list[tuple[str, str]]) -> Iterator[DumpEntry]:
    """Yield each entry, and add the settings before the first entry to `settings`."""
    head, parts, end = ("", "", ""), list[str](), 0
    for token in _TOKEN.finditer(text):
        parts.append(text[end : token.start()])
        end = token.end()
        if token["type"]:
            yield DumpEntry(*head, "".join(parts))
            head, parts = (token["schema"], token["label"], token["type"]), []
        elif token["setting"]:
            # Settings between two entries are the same on every server, or name something that only this server has.
            settings += [] if head[-1] else [(token["name"], token["setting"])]
        elif token[0].startswith(_NAME):
            raise FollowerError(
                "--schema create: a name at the source has a line break, which this pg_dump takes for the end of a"
                " comment; rename it, install a newer pg_dump, or make the tables at the follower"
            )
        elif not token["command"]:
            parts.append(token[0])
    yield DumpEntry(*head, "".join([*parts, text[end:]]))


def _program(major: int) -> str:
    """Return a `pg_dump` that is at least as new as the source. The one in the PATH comes first, since it has TLS."""
    found = [program for program in (shutil.which("pg_dump"), _of_the_wheel()) if program]
    for program in found:
        if _major(program) >= major:
            return program
    raise FollowerError(
        f"--schema create needs a pg_dump of Postgres {major} or newer: install it where the server runs, or make the"
        " tables at the follower"
    )


def _of_the_wheel() -> str | None:
    try:
        program: Path = wheel_bin_dir() / "pg_dump"
    except EmbeddedPostgresError:
        return None
    return str(program) if program.is_file() else None


def _major(program: str) -> int:
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r"\) (\d+)", said)
    return int(found[1]) if found else 0


def _environment(dsn: str) -> dict[str, str]:
    """Return an environment with all parts of a DSN, because every user of the machine can read arguments."""
    variables = {each.keyword: each.envvar for each in pq.Conninfo.get_defaults()}
    given = {each.keyword: each.val for each in pq.Conninfo.parse(dsn.encode()) if each.val is not None}
    found = {
        variable.decode(): given[name].decode() for name, variable in variables.items() if variable and name in given
    }
    return {**os.environ, **found, "PGAPPNAME": "pipeline follower schema", "PGCLIENTENCODING": "UTF8"}
