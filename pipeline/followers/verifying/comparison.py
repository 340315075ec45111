"""Compares one table in three steps: checksums of parts, keys of parts that differ, rows of keys that may differ.

A part is a range of keys, so that no statement runs for long. If the two servers may sort keys by different rules, a
hash of the key divides the rows instead, and each side adds up all parts in one statement.
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
"""The number of rows whose checksums are added up together."""
KEYS_PER_LOOK = 2_000
"""The number of rows that may differ and are read together."""
PATIENCE = 30.0
"""The number of seconds for which the comparison reads rows again that are written all the time."""
LOCK_TIMEOUT = "10s"
"""How long a statement waits for a session that locks a table; other sessions wait behind the statement."""
SOURCE = {**session_settings.SNAPSHOT, "lock_timeout": LOCK_TIMEOUT}
"""Additional settings of each transaction at the source, so that both sides print equal values as equal texts."""
FOLLOWER = {**session_settings.SOURCE, "lock_timeout": LOCK_TIMEOUT}
_BUCKETS_AT_ONCE = 16
Kind = Literal["missing", "extra", "different"]
T = TypeVar("T")


@dataclass(frozen=True)
class RowDifference:
    """A row that is missing at the follower, extra there, or different in these columns.

    `key`: the texts that the source prints, or the follower if only the follower has the row; empty for a table
    without a key.
    """

    key: Key
    kind: Kind
    columns: Sequence[str] = ()


@dataclass(frozen=True)
class ComparisonStep:
    """The result of one step: the number of compared rows of the source, differences, and unsettled rows.

    Unsettled rows were written all the time, so the two sides were never read as of the same commit.
    """

    rows: int = 0
    differences: Sequence[RowDifference] = ()
    unsettled: int = 0


class TableComparison:
    """Compares one table. No other code uses the two connections at the same time."""

    def __init__(
        self,
        source: Connection,
        follower: Connection,
        table: ComparedTable,
        shape: ComparisonShape,
        reach: Callable[[], object],
    ) -> None:
        """`reach`: returns once the follower has everything that the source had at the time of the call."""
        self._shape, self._reach = shape, reach
        encodings = {each.info.parameter_status("server_encoding") for each in (source, follower)}
        portable = len(encodings) > 1
        self._ranged = shape.ranged and not portable  # another encoding has another order of bytes
        at_source, columns = _source_relations(table), shape.columns
        self._source = ComparisonSide(source, SOURCE, at_source, columns, shape.source, portable=portable)
        there = sql.Identifier(table.follower_schema, table.follower_name)
        only = sql.SQL("{} as t" if shape.partitioned else "only {} as t").format(there)
        self._follower = ComparisonSide(follower, FOLLOWER, [only], columns, shape.follower, portable=portable)

    def run(self) -> Iterator[ComparisonStep]:
        """Compare the table, and yield the result of each step.

        Raises psycopg.Error of either database, and the errors of `reach`.
        """
        with ThreadPoolExecutor(1, thread_name_prefix="follower") as self._follower_thread:
            if self._shape.source.key is None:
                yield from self._compare_whole()
                return
            candidates: list[Key] = []
            for rows, keys in self._ranges() if self._ranged else self._buckets():
                yield ComparisonStep(rows)
                candidates += keys
                while len(candidates) >= KEYS_PER_LOOK:
                    yield self._settle(candidates[:KEYS_PER_LOOK])
                    candidates = candidates[KEYS_PER_LOOK:]
            yield self._settle(candidates)

    def _compare_whole(self) -> Iterator[ComparisonStep]:
        """Compare all rows together until both sides are equal, or their difference settles, or the time is up."""
        found = self._settle([()])
        yield ComparisonStep(self._source.sum_of(sql.SQL("true")).rows, found.differences, found.unsettled)

    def _ranges(self) -> Iterator[tuple[int, list[Key]]]:
        """Yield the number of rows of each range, and the keys of rows that may differ."""
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
        return self._query_both(lambda side: side.sum_of(part(side)))

    def _buckets(self) -> Iterator[tuple[int, list[Key]]]:
        parts = 1 << max(0, (self._source.estimate_rows() // ROWS_PER_PART).bit_length())
        here, there = self._query_both(lambda side: side.bucket_sums(parts))
        yield sum(found.rows for found in here.values()), []
        none = PartSum(0, 0)
        differing = [each for each in range(parts) if here.get(each, none) != there.get(each, none)]
        for first in range(0, len(differing), _BUCKETS_AT_ONCE):
            buckets = differing[first : first + _BUCKETS_AT_ONCE]
            yield 0, self._differing(partial(ComparisonSide.bucket_condition, parts=parts, buckets=buckets))

    def _differing(self, part: Callable[[ComparisonSide], sql.Composable]) -> list[Key]:
        """Return the keys of a part's rows that exist at one side only, or have different checksums.

        This reads all keys at once: an open cursor keeps its table locked, and the applier may have to truncate it.
        """
        here, there = self._query_both(lambda side: dict(side.keys(part(side))))
        return [key for key in here | there if here.get(key) != there.get(key)]

    def _settle(self, candidates: Sequence[Key]) -> ComparisonStep:
        """Read these rows again and again until each is equal at both sides, or its difference is final."""
        unsettled, until = UnsettledRows(candidates), time.monotonic() + PATIENCE
        differences: dict[Key, RowDifference] = {}
        while keys := unsettled.pending:
            here, there = self._rows(keys)
            for pair in unsettled.compare(here, there):
                difference = self._difference(pair)
                differences[difference.key] = difference  # two texts of a key, such as 1 and 1.0, can mean one row
            if unsettled.pending and time.monotonic() > until:
                break
            if unsettled.pending:
                self._reach()
        return ComparisonStep(0, tuple(differences.values()), len(unsettled.pending))

    def _rows(self, keys: Sequence[Key]) -> tuple[dict[Key, SideRow], dict[Key, SideRow]]:
        return self._query_both(lambda side: side.rows_by_key(keys))

    def _difference(self, pair: RowPair) -> RowDifference:
        if pair.follower is None:
            assert pair.source is not None  # noqa: S101  a row that neither side has does not differ
            return RowDifference(pair.source.key, "missing")
        if pair.source is None:
            return RowDifference(pair.follower.key, "extra")
        pairs = zip(pair.source.hashes, pair.follower.hashes, strict=True)
        differing = [here != there for here, there in pairs]
        columns = tuple(
            name for name, differs in zip(self._shape.columns, differing, strict=False) if differs and pair.source.key
        )
        return RowDifference(pair.source.key, "different", columns)

    def _query_both(self, ask: Callable[[ComparisonSide], T]) -> tuple[T, T]:
        """Run a query at both sides at the same time."""
        there = self._follower_thread.submit(ask, self._follower)
        try:
            here = ask(self._source)
        except BaseException:
            there.exception()  # wait until the other thread no longer uses its connection
            raise
        return here, there.result()


def _source_relations(table: ComparedTable) -> list[sql.Composable]:
    """Return the table's relations at the source. A partitioned table without partitions has no rows."""
    if not table.relations:
        return [sql.SQL("only {} as t").format(sql.Identifier(table.schema, table.name))]
    return [
        sql.SQL("only {} as t").format(sql.SQL(each.name))
        if each.condition is None
        else sql.SQL("only {} as t where ({})").format(sql.SQL(each.name), sql.SQL(each.condition))
        for each in table.relations
    ]
