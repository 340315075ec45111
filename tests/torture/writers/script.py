"""A scripted writer at the source, and what its transactions must be as events: the model of the directed points."""

from __future__ import annotations

from itertools import count

import psycopg

from tests.fixtures.test_decoding import Change

Transaction = list[Change]
NOTE = 850
"""Characters of a large transaction's rows: some 2,000 of them are the 2 MB after which rows are staged half-way."""
TABLE = "create table item (id int primary key, note text)"
UNPUBLISHED = "create unlogged table elsewhere (note text)"  # what is unlogged cannot be published


class Script:
    """Commits one transaction after the other, on connections past the proxy. `transactions` says what they were."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._ids = count(1)
        self._columns: list[str] = []
        self.transactions: list[Transaction] = []
        self._commit(TABLE, UNPUBLISHED)

    def small(self) -> None:
        """An insert, an update of that row, and the delete of another in one transaction; then one row alone."""
        kept, gone = next(self._ids), next(self._ids)
        self._commit(f"insert into item values ({gone}, 'soon gone')")
        self.transactions.append([self._insert(gone, "soon gone")])
        self._commit(
            f"insert into item values ({kept}, 'a')",
            f"update item set note = 'b' where id = {kept}",
            f"delete from item where id = {gone}",
        )
        self.transactions.append(
            [
                self._insert(kept, "a"),
                self._insert(kept, "b")._replace(action="update"),
                Change("public.item", "delete", str(gone), {"id": str(gone)}),
            ]
        )

    def large(self, rows: int) -> None:
        """Rows enough for several staging commits, in one transaction."""
        first = next(self._ids)
        self._ids = count(first + rows)
        query = f"insert into item (id, note) select n, repeat('x', {NOTE}) from generate_series({first}, {{}}) n"
        self._commit(query.format(first + rows - 1))
        note = "x" * NOTE
        self.transactions.append([self._insert(row, note) for row in range(first, first + rows)])

    def truncate(self) -> None:
        """Two rows, then a truncate with another row behind it in one transaction."""
        self.small()
        row = next(self._ids)
        self._commit("truncate item", f"insert into item (id, note) values ({row}, 'after')")
        self.transactions.append([Change("public.item", "truncate", "", {}), self._insert(row, "after")])

    def alter(self) -> None:
        """Another column, so that the next change brings a new relation; then such a change."""
        self._columns.append(f"c{len(self._columns)}")
        self._commit(f"alter table item add column {self._columns[-1]} int")
        self.small()

    def elsewhere(self) -> None:
        """WAL without anything for the pipeline, enough that the position has to move."""
        self._commit("select pg_logical_emit_message(false, 'elsewhere', repeat('x', 100000))")

    def mark(self) -> None:
        """A message, as everything's end."""
        content = f"mark {next(self._ids)}"
        self._commit(f"select pg_logical_emit_message(true, 'mark', '{content}')")
        self.transactions.append([Change(".mark", "message", "", {"content": content})])

    def flushed(self) -> int:
        """How far the source's WAL goes."""
        with psycopg.connect(self._dsn) as connection:
            row = connection.execute("select pg_current_wal_flush_lsn() - '0/0'").fetchone()
        assert row is not None
        return int(row[0])

    def _insert(self, row: int, note: str) -> Change:
        values: dict[str, str | None] = {"id": str(row), "note": note, **dict.fromkeys(self._columns)}
        return Change("public.item", "insert", str(row), values)

    def _commit(self, *statements: str) -> None:
        with psycopg.connect(self._dsn) as connection:
            for text in statements:
                connection.execute(text.encode())
