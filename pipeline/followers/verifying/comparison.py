"""Compares one table, part by part: of parts whose checksums differ the keys, and of keys that may differ the rows.

A part is a range of keys, so that no statement runs for long. Where the two servers sort keys by other rules, or may,
rows are divided by a hash of their keys, and each side adds up all parts in one statement.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

from psycopg import sql

from pipeline.followers.verifying.shape import ComparedTable, ComparisonShape
from pipeline.followers.verifying.sides import ComparisonSide, PartSum
from pipeline.followers.verifying.unsettled_rows import Key, RowPair, SideRow, UnsettledRows
from pipeline.postgres import session_settings
from pipeline.postgres.connections import Connection

ROWS_PER_PART = 10_000
"""Rows whose checksums are added up together."""
KEYS_PER_LOOK = 2_000
"""Rows that may differ, and are looked at together."""
PATIENCE = 30.0
"""Seconds for which rows are looked at again that are written all the time."""
LOCK_TIMEOUT = "10s"
"""How long a statement waits for a session that locks a table; behind it others would wait, too."""
SOURCE = {**session_settings.SNAPSHOT, "lock_timeout": LOCK_TIMEOUT}
"""Settings of each transaction at the source besides those of all readers: values are printed as at the follower."""
FOLLOWER = {**session_settings.SOURCE, "lock_timeout": LOCK_TIMEOUT}
_BUCKETS_AT_ONCE = 16
Kind = Literal["missing", "extra", "different"]
T = TypeVar("T")


@dataclass(frozen=True)
class RowDifference:
    """A row that the follower lacks, has besides, or has otherwise, then with the names of these columns.

    `key`: texts as the source prints them, or the follower, where only it has the row; empty for a table without a key.
    """

    key: Key
    kind: Kind
    columns: Sequence[str] = ()


@dataclass(frozen=True)
class ComparisonStep:
    """What a step has found: rows of the source that were compared, what differs, and how many rows did not settle.

    Those were written all the while, so that the two sides were never seen as of the same commit.
    """

    rows: int = 0
    differences: Sequence[RowDifference] = ()
    unsettled: int = 0


class TableComparison:
    """Of one table. Both connections are its own for as long."""

    def __init__(
        self,
        source: Connection,
        follower: Connection,
        table: ComparedTable,
        shape: ComparisonShape,
        reach: Callable[[], object],
    ) -> None:
        """`reach`: returns once the follower has everything that the source had when it was called."""
        self._shape, self._reach = shape, reach
        encodings = {each.info.parameter_status("server_encoding") for each in (source, follower)}
        portable = len(encodings) > 1
        self._ranged = shape.ranged and not portable  # the order of bytes is another one, too
        at_source, columns = _at_source(table), shape.columns
        self._source = ComparisonSide(source, SOURCE, at_source, columns, shape.source, portable=portable)
        there = sql.Identifier(table.follower_schema, table.follower_name)
        only = sql.SQL("{} as t" if shape.partitioned else "only {} as t").format(there)
        self._follower = ComparisonSide(follower, FOLLOWER, [only], columns, shape.follower, portable=portable)

    def run(self) -> Iterator[ComparisonStep]:
        """Compare, step by step. Raises psycopg.Error of either database, and what `reach` raises."""
        with ThreadPoolExecutor(1, thread_name_prefix="follower") as self._follower_thread:
            if self._shape.source.key is None:
                yield from self._whole()
                return
            candidates: list[Key] = []
            for rows, keys in self._ranges() if self._ranged else self._buckets():
                yield ComparisonStep(rows)
                candidates += keys
                while len(candidates) >= KEYS_PER_LOOK:
                    yield self._settle(candidates[:KEYS_PER_LOOK])
                    candidates = candidates[KEYS_PER_LOOK:]
            yield self._settle(candidates)

    def _whole(self) -> Iterator[ComparisonStep]:
        """All rows together, as often as it takes: at both sides as of the same commit, or unchanged."""
        found = self._settle([()])
        yield ComparisonStep(self._source.sum_of(sql.SQL("true")).rows, found.differences, found.unsettled)

    def _ranges(self) -> Iterator[tuple[int, list[Key]]]:
        """The rows of each range, and the keys of those that may differ."""
        after: Key | None = None
        while True:
            upto = self._source.upper_bound(after, ROWS_PER_PART)
            part = partial(ComparisonSide.range_condition, after=after, upto=upto)
            here, there = self._sums(part)
            yield here.rows, self._differing(part) if here != there else []
            if upto is None:
                return
            after = upto

    def _sums(self, part: Callable[[ComparisonSide], sql.Composable]) -> tuple[PartSum, PartSum]:
        return self._both(lambda side: side.sum_of(part(side)))

    def _buckets(self) -> Iterator[tuple[int, list[Key]]]:
        parts = 1 << max(0, (self._source.estimate_rows() // ROWS_PER_PART).bit_length())
        here, there = self._both(lambda side: side.bucket_sums(parts))
        yield sum(found.rows for found in here.values()), []
        none = PartSum(0, 0)
        differing = [each for each in range(parts) if here.get(each, none) != there.get(each, none)]
        for first in range(0, len(differing), _BUCKETS_AT_ONCE):
            buckets = differing[first : first + _BUCKETS_AT_ONCE]
            yield 0, self._differing(partial(ComparisonSide.bucket_condition, parts=parts, buckets=buckets))

    def _differing(self, part: Callable[[ComparisonSide], sql.Composable]) -> list[Key]:
        """Keys of rows of a part that are only at one side, or have other checksums there.

        All at once: while a cursor is open its table is locked, and the applier may have to truncate it.
        """
        here, there = self._both(lambda side: dict(side.keys(part(side))))
        return [key for key in here | there if here.get(key) != there.get(key)]

    def _settle(self, candidates: Sequence[Key]) -> ComparisonStep:
        """Look at these rows until each is equal at both sides, or differs for good."""
        unsettled, until = UnsettledRows(candidates), time.monotonic() + PATIENCE
        differences: dict[Key, RowDifference] = {}
        while keys := unsettled.pending:
            here, there = self._rows(keys)
            for pair in unsettled.compare(here, there):
                difference = self._difference(pair)
                differences[difference.key] = difference  # two texts of a key, as 1 and 1.0, are of one row
            if unsettled.pending and time.monotonic() > until:
                break
            if unsettled.pending:
                self._reach()
        return ComparisonStep(0, tuple(differences.values()), len(unsettled.pending))

    def _rows(self, keys: Sequence[Key]) -> tuple[dict[Key, SideRow], dict[Key, SideRow]]:
        return self._both(lambda side: side.rows_by_key(keys))

    def _difference(self, pair: RowPair) -> RowDifference:
        if pair.follower is None:
            assert pair.source is not None  # noqa: S101  it would not differ
            return RowDifference(pair.source.key, "missing")
        if pair.source is None:
            return RowDifference(pair.follower.key, "extra")
        pairs = zip(pair.source.hashes, pair.follower.hashes, strict=True)
        differing = [here != there for here, there in pairs]
        columns = tuple(
            name for name, differs in zip(self._shape.columns, differing, strict=False) if differs and pair.source.key
        )
        return RowDifference(pair.source.key, "different", columns)

    def _both(self, ask: Callable[[ComparisonSide], T]) -> tuple[T, T]:
        """Ask both sides at the same time."""
        there = self._follower_thread.submit(ask, self._follower)
        try:
            here = ask(self._source)
        except BaseException:
            there.exception()  # nothing may go on with the connection
            raise
        return here, there.result()


def _at_source(table: ComparedTable) -> list[sql.Composable]:
    """Its relations there. A table that is partitioned without a partition has no rows."""
    if not table.relations:
        return [sql.SQL("only {} as t").format(sql.Identifier(table.schema, table.name))]
    return [
        sql.SQL("only {} as t").format(sql.SQL(each.name))
        if each.condition is None
        else sql.SQL("only {} as t where ({})").format(sql.SQL(each.name), sql.SQL(each.condition))
        for each in table.relations
    ]
