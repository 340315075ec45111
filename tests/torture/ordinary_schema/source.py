"""The source as its migrations see it: its tables and columns by now, and what other jobs are under way."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import namedtuple_row

_FOLDER = Path(__file__).parent
_TABLES, _COLUMNS = ((_FOLDER / name).read_bytes() for name in ("known_tables.sql", "columns.sql"))


class BusyTableError(Exception):
    """Another job is under way with one of these tables."""


class Source:
    """One session, and what chance wants next. `busy`: tables of which a job is under way."""

    def __init__(self, dsn: str, seed: int) -> None:
        self.connection = psycopg.connect(dsn, autocommit=True)
        self.connection.execute("set lock_timeout = '2s'")
        self.chance = random.Random(seed)
        self.busy = set[str]()
        self.major = self.connection.info.server_version // 10_000
        self._number = 0

    def tables(self) -> list[Any]:
        return self.connection.cursor(row_factory=namedtuple_row).execute(_TABLES).fetchall()

    def columns(self, table: Any) -> list[Any]:
        return self.connection.cursor(row_factory=namedtuple_row).execute(_COLUMNS, [table.name]).fetchall()

    def number(self) -> int:
        """One that no name has yet."""
        self._number += 1
        return self._number

    def table(self, *, shadowable: bool = False) -> Any:
        """One with a key of which no job is under way; `shadowable`: another may take its name."""
        found = [each for each in self.tables() if each.keyed and each.name not in self.busy and not each.passing]
        return self.chance.choice([each for each in found if not shadowable or (each.alone and not each.numbered)])

    def claim(self, *names: str) -> None:
        """Let no other job begin with these tables. Raises BusyTableError where one has."""
        if self.busy.intersection(names):
            raise BusyTableError(names)
        self.busy.update(names)
