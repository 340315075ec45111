"""The rows of a table at one side: checksums of many rows, keys with checksums, or rows by their keys.

Both sessions print values by the same settings, so that equal rows are equal texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from psycopg import sql

from pipeline.followers.verifying.settling import Key, Row
from pipeline.followers.verifying.shape import Column
from pipeline.postgres.connections import Connection

KEYS_AT_ONCE = 10_000
"""Keys that are read from a server in one go, of however many there are."""
_COMMA = sql.SQL(", ")
_WHOLE: Key = ()


@dataclass(frozen=True)
class Sum:
    """Of the rows of a part: how many, and the sum of their checksums, which knows no order."""

    rows: int
    checksum: int


class Side:
    """Uses its connection, from one thread at a time."""

    def __init__(
        self,
        connection: Connection,
        relations: Sequence[sql.Composable],
        columns: Sequence[str],
        key: Sequence[Column],
        *,
        portable: bool,
    ) -> None:
        """`relations`: each may have a condition, as it stands behind `from`; their rows together are the table's.

        `portable`: hashes are of UTF-8, since the two servers have other encodings; that takes longer.
        """
        self._connection, self._key, self._portable = connection, key, portable
        self._mark = "~" * (1 + max((len(name) for name in columns if not name.strip("~")), default=0))
        self._columns = [sql.Identifier("t", name) for name in columns]
        self._keys = [sql.Identifier("t", column.name) for column in key]
        self._rows = sql.SQL("({}) as t").format(sql.SQL("\nunion all\n").join(map(self._of, relations)))
        self._checksum = self._hash(_row(self._columns))

    def _of(self, relation: sql.Composable) -> sql.Composable:
        """With the version of each row: a row that was written since has another."""
        version = sql.SQL("pg_catalog.concat(t.tableoid::bigint, ' ', t.ctid, ' ', t.xmin) as {}")
        chosen = [*self._columns, version.format(sql.Identifier(self._mark))]
        return sql.SQL("select {} from {}").format(_COMMA.join(chosen), relation)

    def sum(self, part: sql.Composable) -> Sum:
        """The rows of a part."""
        query = sql.SQL("select count(*), coalesce(sum({}), 0) from {} where {}").format(
            self._checksum, self._rows, part
        )
        rows, checksum = self._connection.execute(query).fetchone() or (0, 0)
        return Sum(rows, int(checksum))

    def sums(self, parts: int) -> dict[int, Sum]:
        """All rows, divided by `bucket`."""
        query = sql.SQL("select {}, count(*), sum({}) from {} group by 1").format(
            self._bucket(parts), self._checksum, self._rows
        )
        return {bucket: Sum(rows, int(total)) for bucket, rows, total in self._connection.execute(query).fetchall()}

    def keys(self, part: sql.Composable) -> Iterator[tuple[Key, int]]:
        """Key and checksum of each row of a part, in no order."""
        query = sql.SQL("select {}, {} from {} where {}").format(self._texts(), self._checksum, self._rows, part)
        with self._connection.transaction(), self._connection.cursor("rows of a part") as cursor:
            cursor.itersize = KEYS_AT_ONCE
            for key, checksum in cursor.execute(query):
                yield tuple(key), int(checksum)

    def by_key(self, keys: Sequence[Key]) -> dict[Key, Row]:
        """Those of these rows that are there, by the key that was asked for; a table without a key is one row."""
        if not self._key:
            return {_WHOLE: self._whole()}
        query = sql.SQL("select k.place, {}, t.{}, {} from {} join {} on {}").format(
            self._texts(),
            sql.Identifier(self._mark),
            sql.SQL("array[{}]::bigint[]").format(_COMMA.join(map(self._hash_of, self._columns))),
            self._asked(keys),
            self._rows,
            sql.SQL(" and ").join(map(self._found_by, range(len(self._key)))),
        )
        found = self._connection.execute(query).fetchall()
        return {keys[place - 1]: Row(tuple(key), version, tuple(hashes)) for place, key, version, hashes in found}

    def bound(self, after: Key | None, rows: int) -> Key | None:
        """The key so many rows after another, None where there are fewer."""
        query = sql.SQL("select {} from {} where {} order by {} offset {} limit 1").format(
            self._texts(), self._rows, part_of(self._key, after, None), _COMMA.join(self._keys), sql.Literal(rows - 1)
        )
        found = self._connection.execute(query).fetchone()
        return tuple(found[0]) if found else None

    def bucket_is(self, parts: int, buckets: Sequence[int]) -> sql.Composable:
        """The part of the rows that are in these buckets."""
        return sql.SQL("{} = any({}::int[])").format(self._bucket(parts), sql.Literal(list(buckets)))

    def estimate(self) -> int:
        """How many rows there are, without counting them."""
        found = self._connection.execute(sql.SQL("explain (format json) select from {}").format(self._rows)).fetchone()
        return int(found[0][0]["Plan"]["Plan Rows"]) if found else 0

    def _whole(self) -> Row:
        found = self.sum(sql.SQL("true"))
        return Row(_WHOLE, "", (found.rows, found.checksum))

    def _texts(self) -> sql.Composable:
        texts = (sql.SQL("pg_catalog.concat({})").format(each) for each in self._keys)
        return sql.SQL("array[{}]::text[]").format(_COMMA.join(texts))

    def _asked(self, keys: Sequence[Key]) -> sql.Composable:
        """These keys as a table of the texts `key_0`, …, with their place."""
        names = [sql.Identifier(f"key_{number}") for number in range(len(self._key))]
        lists = [
            sql.SQL("{}::text[]").format(sql.Literal([key[number] for key in keys])) for number in range(len(self._key))
        ]
        return sql.SQL("unnest({}) with ordinality as k ({}, place)").format(_COMMA.join(lists), _COMMA.join(names))

    def _found_by(self, number: int) -> sql.Composable:
        column = self._key[number]
        return sql.SQL("{} {} k.{}::{}").format(
            self._keys[number],
            sql.SQL(column.equals),
            sql.Identifier(f"key_{number}"),
            sql.SQL(column.type_name),
        )

    def _bucket(self, parts: int) -> sql.Composable:
        return sql.SQL("({} & {})::int").format(self._hash(_row(self._keys)), sql.Literal(parts - 1))

    def _hash_of(self, value: sql.Composable) -> sql.Composable:
        """Of a value's text as its type prints it. For SQL a composite is null also where all of its fields are."""
        text = self._hash(sql.SQL("pg_catalog.concat({})").format(value))
        return sql.SQL("case when pg_catalog.num_nulls({}) = 0 then {} end").format(value, text)

    def _hash(self, text: sql.Composable) -> sql.Composable:
        """64 bits, equal for equal texts on every server of one encoding."""
        if self._portable:
            digest = "('x' || left(pg_catalog.md5(pg_catalog.convert_to(({})::text, 'UTF8')), 16))::bit(64)::bigint"
            return sql.SQL(digest).format(text)
        return sql.SQL('pg_catalog.hashtextextended(({})::text collate "C", 0)').format(text)


def part_of(key: Sequence[Column], after: Key | None, upto: Key | None) -> sql.Composable:
    """The part of the rows with keys after the first one and up to the second one; None: no bound."""
    columns = _COMMA.join(sql.Identifier("t", column.name) for column in key)
    bounds = [
        sql.SQL("({}) {} ({})").format(columns, sql.SQL(compared), _values(key, bound))
        for compared, bound in ((">", after), ("<=", upto))
        if bound is not None
    ]
    return sql.SQL(" and ").join(bounds) if bounds else sql.SQL("true")


def _values(columns: Sequence[Column], key: Key) -> sql.Composable:
    return _COMMA.join(
        sql.SQL("{}::{}").format(sql.Literal(text), sql.SQL(column.type_name))
        for text, column in zip(key, columns, strict=True)
    )


def _row(values: Sequence[sql.Composable]) -> sql.Composable:
    return sql.SQL("row({})").format(_COMMA.join(values))
