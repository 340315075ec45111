"""The administrator who reads why a follower stopped, and runs the statement that it names there."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from contextlib import suppress

import psycopg

from pipeline.followers.operating import resync
from pipeline.followers.operating.status import FollowerStatus
from pipeline.postgres.connections import Connection
from tests.torture.ordinary_schema.source import Source

_TYPE = """
    select format('create type %%s as enum (%%s)', t.oid::regtype, string_agg(quote_literal(e.enumlabel), ', '
        order by e.enumsortorder))
    from pg_type t join pg_enum e on e.enumtypid = t.oid where t.oid = to_regtype(%s) group by t.oid
"""


class Helper:
    """`stops`: by kind; `examples`: what was said first of each kind."""

    def __init__(self, source: Source, dsn: str) -> None:
        """`dsn`: of the follower."""
        self._source, self._dsn = source, dsn
        self.stops, self.examples = Counter[str](), dict[str, str]()
        self._done = dict[str, str]()

    def help(self, found: FollowerStatus, log: Connection) -> None:
        """Run each statement that is named now; a stop that names none is left alone."""
        said = [(found.state, found.reason, found.remedy)] if found.state != "following" else []
        said += [(each.state, f"{each.table}: {each.reason}", each.remedy) for each in found.not_followed]
        for state, reason, remedy in said:
            text = f"{state}: {reason}; {remedy}"
            for statement in _statements(reason, remedy):
                kind = _kind(statement)
                self.stops[kind] += self._done.get(statement) != text
                self._done[statement] = text
                self.examples.setdefault(kind, text)
                self._run(found.name, statement, log)

    def _run(self, follower: str, statement: str, log: Connection) -> None:
        if statement.startswith("pipeline followers resync"):
            resync.resync(log, follower, shlex.split(statement)[4:])
            return
        if statement.startswith("pipeline"):
            return
        with suppress(psycopg.Error), psycopg.connect(self._dsn, autocommit=True) as there:
            there.execute(self._completed(statement).encode())

    def _completed(self, statement: str) -> str:
        """One that says `…`, as a user completes it who reads the source."""
        if (made := re.match(r"create type (\S+) …", statement)) is not None:
            found = self._source.connection.execute(_TYPE.encode(), [made[1]]).fetchone()
            return found[0] if found else statement
        # The jobs here call a label `renamed 7` that was `label 7`.
        return re.sub(r"rename value 'label (\d+)' to …", r"rename value 'label \1' to 'renamed \1'", statement)


def _statements(reason: str | None, remedy: str | None) -> list[str]:
    return re.findall(r"`([^`]+)`", f"{remedy} {reason}")[:1]


def _kind(statement: str) -> str:
    """Its words, without names."""
    words = re.sub(r'"[^"]*"|\S*[._]\S*|\b\S*\d\S*|\(.*', "", statement).split()
    return " ".join(words[:7])
