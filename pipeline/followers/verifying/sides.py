"""Reads the rows of a table at one side: checksums of many rows, keys with checksums, or rows by their keys.

Both sessions print values with the same settings, so that equal rows are equal texts. Values of types that users
created are used only where no function of a user runs: `pipeline/postgres/key_comparison.py` decides which comparisons
are safe.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from pipeline.followers.verifying.shape import SideDefinition
from pipeline.followers.verifying.unsettled_rows import Key, SideRow
from pipeline.postgres import key_comparison, reading_session
from pipeline.postgres.connections import Connection

KEYS_AT_ONCE = 10_000
"""The number of keys that a cursor fetches from a server at once."""
_COMMA = sql.SQL(", ")
_WHOLE: Key = ()


@dataclass(frozen=True)
class PartSum:
    """The number of rows in a part, and the sum of their checksums, which does not depend on their order."""

    rows: int
    checksum: int


class ComparisonSide:
    """Reads one side over its connection, from one thread at a time. Each query is a read-only transaction."""

    def __init__(
        self,
        connection: Connection,
        settings: Mapping[str, str],
        relations: Sequence[sql.Composable],
        columns: Sequence[str],
        definition: SideDefinition,
        *,
        portable: bool,
    ) -> None:
        """`relations`: SQL that can follow `from`, each with its condition; together they hold the table's rows.

        `definition` is read again in each transaction, because an alteration can make a safe query unsafe. `settings`:
        those of each transaction. `portable`: hash the values in UTF-8, because the two servers have different
        encodings; this takes longer.
        """
        self._connection, self._settings, self._portable = connection, settings, portable
        self._definition = definition
        self._key = key = definition.key
        self._mark = "~" * (1 + max((len(name) for name in columns if not name.strip("~")), default=0))
        self._columns = [sql.Identifier("t", name) for name in columns]
        self._keys = [sql.Identifier("t", column.name) for column in key.columns] if key else []
        self._rows = sql.SQL("({}) as t").format(sql.SQL("\nunion all\n").join(map(self._rows_of, relations)))
        self._checksum = self._hash(_row(self._columns))

    def _rows_of(self, relation: sql.Composable) -> sql.Composable:
        """Return a query of a relation's rows, each with its row version as text.

        The row version changes whenever the row is written. The text is empty if this user may not see it.
        """
        locations = sql.SQL(
            "t.tableoid::bigint, ' ', t.ctid, ' ', t.xmin" if self._definition.shows_locations else "''"
        )
        version = sql.SQL("pg_catalog.concat({}) as {}")
        chosen = [*self._columns, version.format(locations, sql.Identifier(self._mark))]
        return sql.SQL("select {} from {}").format(_COMMA.join(chosen), relation)

    def sum_of(self, part: sql.Composable) -> PartSum:
        """Return the number of rows in a part, and the sum of their checksums."""
        query = sql.SQL("select pg_catalog.count(*), coalesce(pg_catalog.sum({}), 0) from {} where {}")
        [(rows, checksum)] = self._fetch(query.format(self._checksum, self._rows, part))
        return PartSum(rows, int(checksum))

    def bucket_sums(self, parts: int) -> dict[int, PartSum]:
        """Return the sums of all rows, divided into this number of buckets, by bucket."""
        query = sql.SQL("select {}, pg_catalog.count(*), pg_catalog.sum({}) from {} group by 1")
        found = self._fetch(query.format(self._bucket(parts), self._checksum, self._rows))
        return {bucket: PartSum(rows, int(total)) for bucket, rows, total in found}

    def keys(self, part: sql.Composable) -> Iterator[tuple[Key, int]]:
        """Yield the key and the checksum of each row of a part, in no particular order."""
        query = sql.SQL("select {}, {} from {} where {}").format(self._texts(), self._checksum, self._rows, part)
        with self._transaction(), self._connection.cursor("rows of a part") as cursor:
            cursor.itersize = KEYS_AT_ONCE
            for key, checksum in cursor.execute(query):
                yield tuple(key), int(checksum)

    def rows_by_key(self, keys: Sequence[Key]) -> dict[Key, SideRow]:
        """Return the existing rows with these keys, by key. A table without a key counts as one row."""
        if self._key is None:
            return {_WHOLE: self._whole()}
        query = sql.SQL("select k.place, {}, t.{}, {} from {} join {} on {}").format(
            self._texts(),
            sql.Identifier(self._mark),
            sql.SQL("array[{}]::bigint[]").format(_COMMA.join(map(self._hash_of, self._columns))),
            self._key.as_table(keys),
            self._rows,
            self._key.equals_row(),
        )
        found = self._fetch(query)
        return {keys[number]: SideRow(tuple(key), version, tuple(hashes)) for number, key, version, hashes in found}

    def upper_bound(self, after: Key | None, rows: int) -> Key | None:
        """Return the key that comes this number of rows after another key; None if there are fewer rows."""
        assert self._key is not None  # noqa: S101  only ranges of keys have bounds
        query = sql.SQL("select {} from {} where {} order by {} offset {} limit 1").format(
            self._texts(), self._rows, self.range_condition(after, None), self._key.order(), sql.Literal(rows - 1)
        )
        found = self._fetch(query)
        return tuple(found[0][0]) if found else None

    def range_condition(self, after: Key | None, upto: Key | None) -> sql.Composable:
        """Return the condition for keys after the first one and up to the second one; None means no bound."""
        assert self._key is not None  # noqa: S101  only ranges of keys have bounds
        bounds = [] if after is None else [self._key.bounded(">", after)]
        bounds += [] if upto is None else [self._key.bounded("<=", upto)]
        return sql.SQL(" and ").join(bounds) if bounds else sql.SQL("true")

    def bucket_condition(self, parts: int, buckets: Sequence[int]) -> sql.Composable:
        """Return the condition for rows in these buckets."""
        listed = sql.Literal(list(buckets))
        return sql.SQL("{} operator(pg_catalog.=) any ({}::int[])").format(self._bucket(parts), listed)

    def estimate_rows(self) -> int:
        """Return the planner's estimate of the number of rows."""
        [(found,)] = self._fetch(sql.SQL("explain (format json) select from {}").format(self._rows))
        return int(found[0]["Plan"]["Plan Rows"])

    def _fetch(self, query: sql.Composed) -> list[tuple[Any, ...]]:
        with self._transaction():
            return self._connection.execute(query).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with reading_session.transaction(self._connection, self._settings), key_comparison.no_ambiguity():
            names = list(map(sql.SQL, self._definition.names))
            reading_session.lock(self._connection, names, self._settings, self._settings["lock_timeout"])
            self._definition.require_unaltered(self._connection)
            yield

    def _whole(self) -> SideRow:
        found = self.sum_of(sql.SQL("true"))
        return SideRow(_WHOLE, "", (found.rows, found.checksum))

    def _texts(self) -> sql.Composable:
        texts = (sql.SQL("pg_catalog.concat({})").format(each) for each in self._keys)
        return sql.SQL("array[{}]::pg_catalog.text[]").format(_COMMA.join(texts))

    def _bucket(self, parts: int) -> sql.Composable:
        return sql.SQL("({} operator(pg_catalog.&) {})::int").format(
            self._hash(_row(self._keys)), sql.Literal(parts - 1)
        )

    def _hash_of(self, value: sql.Composable) -> sql.Composable:
        """Return SQL for the hash of a value's text, null for a null value.

        In SQL, a composite value is also null if all of its fields are null; this hash treats it as a value.
        """
        text = self._hash(sql.SQL("pg_catalog.concat({})").format(value))
        return sql.SQL("case when pg_catalog.num_nulls({}) operator(pg_catalog.=) 0 then {} end").format(value, text)

    def _hash(self, text: sql.Composable) -> sql.Composable:
        """Return SQL for a hash of 64 bits that is the same for equal texts on every server of one encoding."""
        if self._portable:
            bytes_of = "pg_catalog.md5(pg_catalog.convert_to(({})::pg_catalog.text, 'UTF8'))"
            digest = f"('x' operator(pg_catalog.||) pg_catalog.left({bytes_of}, 16))::bit(64)::bigint"
            return sql.SQL(digest).format(text)
        return sql.SQL('pg_catalog.hashtextextended(({})::pg_catalog.text collate pg_catalog."C", 0)').format(text)


def _row(values: Sequence[sql.Composable]) -> sql.Composable:
    return sql.SQL("row({})").format(_COMMA.join(values))
