"""The rows of a table as the log has them, as of any snapshot that is taken at the source later.

They are in temporary tables of the session: `content_state` has every row up to a seq, and is read once;
`content_changes` has the events since. A snapshot that is taken after that seq was read contains everything up to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import sql

from pipeline.capture.schema_history.versions import PublishedColumn
from pipeline.capture.source.sources import ReplicationSource
from pipeline.comparing import partition_bounds, row_text
from pipeline.comparing.compared_table import ComparableTable
from pipeline.errors import NotComparableError
from pipeline.log import planner_statistics, tables
from pipeline.log.table import DEFAULT, EventsTable
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement
from pipeline.wal import record_key
from pipeline.wal.encoding import BOOL, RowEncoder
from pipeline.wal.messages import Value

Key = tuple[str, ...]
"""Texts of the key's columns."""
_NEWEST = 50_000
_LIST = sql.SQL(", ")
_DROP = (
    "drop table if exists pg_temp.content_state, pg_temp.content_changes, pg_temp.content_bounds, pg_temp.content_keys"
)
FIRST_OF_OURS = 16_384
"""Oids of types that every database has are below this (FirstNormalObjectId in access/transam.h)."""
_COMMA = sql.SQL(", ")


@dataclass(frozen=True)
class PartChecksum:
    """The rows of a part: how many, the sum of their checksums, and whether all of them are `known` completely."""

    rows: int = 0
    checksum: int = 0
    known: bool = True


@dataclass(frozen=True)
class RowChecksum:
    """A row of a part. `checksum`: None if the log lacks values of the row. `events`, `seq`: its newest event."""

    checksum: int | None
    events: EventsTable
    seq: int


@dataclass(frozen=True)
class EventRow:
    """The values of a row in one event. `texts`: the values of the table's columns, None for null.

    For each column, `written`: True if the event has a value; `older`: True if the event is older than the column.
    `left_out`: columns whose values the event omits. `parked`: True if the event has no values at all.
    """

    events: EventsTable
    seq: int
    texts: Sequence[str | None]
    written: Sequence[bool]
    older: Sequence[bool]
    left_out: Collection[str]
    parked: bool


class TableTruncatedError(NotComparableError):
    """The table was truncated while it was compared, so the state that was read from the log is void."""


class LogState:
    """The state of one table in the log. Use `opened`; a session may have one at a time."""

    def __init__(
        self, connection: Connection, stored: ReplicationSource, table: ComparableTable, rows_per_part: int
    ) -> None:
        self._connection, self._stored, self._table = connection, stored, table
        self._written = tables.with_known(connection, []) or [DEFAULT]
        planner_statistics.refresh(connection, self._written)
        self._read_upto = self._heads()
        self._rows_per_part = rows_per_part
        self._typed = True
        names = [column.name for column in table.columns]
        self._encoder = RowEncoder(
            [(column.name, column.base_type_oid) for column in table.columns],
            [names.index(column.name) for column in table.key],
        )
        self.bounds: list[Key] = []
        """The last key of each part but the last, in the order of the parts."""
        try:
            self._make()
        except psycopg.DataError:  # a key in the log is no value of its type, so keys are sorted as texts
            if table.within is not None:
                raise
            self._typed = False
            self._make()

    def _heads(self) -> Mapping[str, int]:
        """Return the newest seq of each events table; an event that commits later has a larger one."""
        newest = sql.SQL("coalesce((select max(seq) from {}), 0)")
        query = sql.SQL("select {}").format(_LIST.join(newest.format(each.identifier) for each in self._written))
        found = self._connection.execute(query).fetchone() or ()
        return {str(events): seq for events, seq in zip(self._written, found, strict=True)}

    def has_any_of(self, xids: Sequence[int]) -> bool:
        """True if one of the newest events that were read belongs to one of these transactions.

        Older events need no check: if one commit waits for a standby, most later commits wait, too. So the log does not
        advance far beyond it.
        """
        if not xids:
            return False
        each = sql.SQL("exists (select from {} e where e.seq > {} and e.seq <= {} and e.xid = any({}))")
        looks = [
            each.format(events.identifier, upto - _NEWEST, upto, sql.Literal(list(xids)))
            for events in self._written
            if (upto := self._read_upto[str(events)])
        ]
        if not looks:
            return False
        found = self._connection.execute(sql.SQL("select {}").format(sql.SQL(" or ").join(looks))).fetchone()
        return bool(found and found[0])

    def _make(self) -> None:
        nothing = dict.fromkeys(self._read_upto, 0)
        with self._connection.transaction():
            self._connection.execute(_DROP)
            self._connection.execute("set local work_mem = '64MB'")
            self._connection.execute(
                sql.SQL(statement("comparing", "make_state")).format(
                    **self._parts_of_statement(nothing, self._read_upto),
                    rows_per_part=sql.Literal(self._rows_per_part),
                )
            )
            self._connection.execute("create index on content_state (part); analyze content_state")
            names = self._key_names()
            self._connection.execute(
                sql.SQL(
                    "create temporary table content_bounds as select part, {names} from content_state"
                    " where ends_part and part < (select max(part) from content_state); analyze content_bounds;"
                    " create temporary table content_keys as select {names} from content_bounds limit 0"
                ).format(names=names)
            )
            self._connection.execute(statement("comparing", "make_changes"))
            self._connection.execute("create index on content_changes (part)")
        found = self._connection.execute(
            sql.SQL("select {} from content_bounds order by part").format(self._key_texts("content_bounds"))
        ).fetchall()
        self.bounds = [tuple(key) for (key,) in found]

    def _parts_of_statement(self, after: Mapping[str, int], upto: Mapping[str, int]) -> dict[str, sql.Composable]:
        """Return the parts of the statements that read events after one seq and up to another, by events table."""
        changes, given_up, truncated, emptied = [], [], [], []
        record = sql.SQL("(e.record || e.changes)")
        epoch = self._table.epoch
        names = sql.SQL("array[{}]::text[]").format(_LIST.join(key_names(self._table)))
        key = sql.SQL(statement("log", "key_of_record")).format(
            names=names, record=record, columns=key_types(self._table)
        )
        for number, events in enumerate(self._written):
            values = {
                "source": sql.Literal(number),
                "events": events.identifier,
                "name": sql.Literal(str(events)),
                "source_id": sql.Literal(self._stored.id),
                "table": sql.Literal(self._table.oid),
                "relations": sql.Literal([self._table.oid, *(each.oid for each in self._table.relations)]),
                "after": sql.Literal(after.get(str(events), 0)),
                "upto": sql.Literal(upto.get(str(events), 0)),
            }
            values["counts"] = self._table.counts
            changes.append(sql.SQL(statement("comparing", "changes_of_table")).format(**values))
            each = sql.SQL(statement("comparing", "keys_given_up"))
            given_up.append(each.format(**values, key=key, key_columns=names))
            truncated.append(sql.SQL(statement("comparing", "truncated")).format(**values))
            emptied.append(sql.SQL(statement("comparing", "emptied")).format(**values))
        key_texts = key_in_log(self._table)
        kept = [sql.SQL("e.key_texts[{}]").format(place + 1) for place in range(len(key_texts))]
        return {
            "changes": sql.SQL("\nunion all\n").join(changes),
            "given_up": sql.SQL("\nunion all\n").join(given_up),
            "truncated": sql.SQL("\nunion all\n").join(truncated),
            "emptied": sql.SQL("\nunion all\n").join(emptied),
            "checksum": row_text.log_checksum(self._table.columns, epoch),
            "key_texts": _LIST.join(key_texts),
            "keys": _LIST.join(key_values(self._table.key, key_texts, typed=self._typed)),
            "keys_of_texts": _LIST.join(key_values(self._table.key, kept, typed=self._typed)),
            "key_names": self._key_names(),
            "within": partition_bounds.may_hold(self._table.within, self._table.key),
        }

    def _key_names(self, of: str | None = None) -> sql.Composable:
        names = [f"key_{place}" for place in range(len(self._table.key))]
        return _LIST.join(sql.Identifier(of, name) if of else sql.Identifier(name) for name in names)

    def _key_texts(self, of: str) -> sql.Composable:
        return row_text.texts([sql.Identifier(of, f"key_{place}") for place in range(len(self._table.key))])

    def read_on(self) -> None:
        """Read the events that arrived since the last time. Raises TableTruncatedError."""
        upto = self._heads()
        values = self._parts_of_statement(self._read_upto, upto)
        if self._connection.execute(sql.SQL("{}").format(values["truncated"])).fetchone():
            raise TableTruncatedError("the table was truncated during the comparison")
        self._connection.execute(
            sql.SQL(statement("comparing", "add_changes")).format(
                **values,
                key_names_of_change=self._key_names(of="k"),
                key_names_of_bound=self._key_names(of="b"),
                last_part=sql.Literal(len(self.bounds)),
            )
        )
        self._read_upto = upto

    def sums(self, snapshots: Mapping[int, str]) -> dict[int, PartChecksum]:
        """Return the sums of these parts, each as of its snapshot. Call `read_on` first, after the snapshots."""
        query = sql.SQL(
            "{seen} select part, count(*), coalesce(sum(checksum), 0), bool_and(checksum is not null)"
            " from there group by part"
        ).format(seen=self._seen_rows(snapshots))
        found = {
            part: PartChecksum(rows, int(checksum), known)
            for part, rows, checksum, known in self._connection.execute(query)
        }
        return {part: found.get(part, PartChecksum()) for part in snapshots}

    def rows(self, part: int, snapshot: str) -> dict[Key, RowChecksum]:
        """Return the rows of one part by key, as of a snapshot. Call `read_on` first, as for `sums`."""
        query = sql.SQL("{seen} select key, record_pk, checksum, source, seq from there").format(
            seen=self._seen_rows({part: snapshot})
        )
        return {
            self._key(key, pk): RowChecksum(checksum, self._written[number], seq)
            for key, pk, checksum, number, seq in self._connection.execute(query)
        }

    def _key(self, texts: Sequence[str | None], record_pk: str) -> Key:
        """Return the key of an event: its texts, or else the parts of record_pk.

        Only record_pk has the key of a parked event, and of an event of an earlier epoch with other column names.
        """
        known = tuple(text for text in texts if text is not None)
        if len(known) == len(texts):
            return known
        parts = zip(self._table.key, record_key.split_key(record_pk, len(texts)), strict=False)
        return tuple(text[:1] if column.base_type_oid == BOOL else text for column, text in parts)

    def newest(self, keys: Sequence[Key], snapshot: str) -> dict[Key, EventRow]:
        """Return the newest event of each of these rows, as of a snapshot. Call `read_on` first, as for `sums`."""
        pks = {self._record_pk(key): key for key in keys}
        self._connection.execute("create index if not exists content_state_key on pg_temp.content_state (record_pk)")
        query = sql.SQL(statement("comparing", "rows_by_key")).format(
            keys=sql.Literal(list(pks)), snapshot=sql.Literal(snapshot)
        )
        by_table: dict[int, dict[int, Key]] = {}
        for pk, number, seq in self._connection.execute(query):
            by_table.setdefault(number, {})[seq] = pks[pk]
        return {key: row for number, seqs in by_table.items() for key, row in self._read(self._written[number], seqs)}

    def _read(self, events: EventsTable, seqs: Mapping[int, Key]) -> Iterator[tuple[Key, EventRow]]:
        columns, epoch = self._table.columns, self._table.epoch
        query = sql.SQL(statement("comparing", "values_of_events")).format(
            texts=row_text.log_texts(columns, epoch),
            written=sql.SQL(", ").join(row_text.has_value(column, epoch) for column in columns),
            older=sql.SQL(", ").join(row_text.is_older(column, epoch) for column in columns),
            events=events.identifier,
            seqs=sql.Literal(list(seqs)),
        )
        for seq, texts, written, older, left_out, parked in self._connection.execute(query):
            yield seqs[seq], EventRow(events, seq, texts, written, older, frozenset(left_out or ()), parked)

    def _record_pk(self, key: Key) -> str:
        row: list[Value] = [None] * len(self._table.columns)
        for place, text in zip(self._encoder.key, key, strict=True):
            row[place] = text.encode()
        return self._encoder.key_of(row).decode()

    def _seen_rows(self, snapshots: Mapping[int, str]) -> sql.Composable:
        return sql.SQL(statement("comparing", "seen_rows")).format(
            parts=sql.Literal(list(snapshots)),
            snapshots=sql.Literal(list(snapshots.values())),
            key_texts_of_change=self._key_texts("c"),
            key_texts_of_state=self._key_texts("b"),
        )

    def close(self) -> None:
        """Drop the temporary tables."""
        if not self._connection.closed:
            self._connection.execute(_DROP)


@contextmanager
def opened(
    connection: Connection, stored: ReplicationSource, table: ComparableTable, rows_per_part: int
) -> Iterator[LogState]:
    """Yield the state of a table in the log, read up to now; drop it at the end."""
    found = LogState(connection, stored, table, rows_per_part)
    try:
        yield found
    finally:
        found.close()


def key_names(table: ComparableTable) -> list[sql.Composable]:
    """Return SQL for the names under which the event `e` has the key's columns."""
    found = []
    for number, column in enumerate(table.key):
        name: sql.Composable = sql.Literal(column.name)
        last = None
        for lsn, idx, called in table.key_names:
            literal = sql.Literal(called[number])
            if called[number] != last:
                name = literal if last is None else row_text.since(table.epoch, lsn, idx, literal, name)
            last = called[number]
        found.append(name)
    return found


def key_in_log(table: ComparableTable) -> list[sql.Composable]:
    """Return SQL for the texts of the key's values in the event `e`, as the source prints them."""
    return [
        sql.SQL("({})").format(row_text.any_text(column, name))
        for column, name in zip(table.key, key_names(table), strict=True)
    ]


def key_types(table: ComparableTable) -> sql.Composable:
    """Return SQL for the key's columns in the event `e`, in the form of `pipeline.relations`."""
    described = sql.SQL("jsonb_build_object('name', {}, 'base_type_oid', {})")
    return sql.SQL("jsonb_build_array({})").format(
        _COMMA.join(
            described.format(name, sql.Literal(column.base_type_oid))
            for column, name in zip(table.key, key_names(table), strict=True)
        )
    )


def key_values(
    columns: Sequence[PublishedColumn], key_texts: Sequence[sql.Composable], *, typed: bool
) -> list[sql.Composable]:
    """Return SQL for the key's values, with their types if all databases have these, to sort as at the source.

    Values of other types stay texts, and so do all if not `typed`. Then only the order of rows differs from that at the
    source.
    """
    found: list[sql.Composable] = []
    for column, text in zip(columns, key_texts, strict=True):
        builtin = typed and column.type_oid < FIRST_OF_OURS
        found.append(sql.SQL("{}::{}").format(text, sql.SQL(column.cast)) if builtin else text)
    return found
