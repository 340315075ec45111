"""What the ledger is asked before a fold: as many questions for many tables as for one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lake.states.lake_tables import LakeTables
from tests.fixtures.lake_ledger import SOURCE, Ledger, lake_ledger

FORMS = """
    insert into pipeline.relations (source_id, epoch, relation_oid, relation_schema, relation_name, table_oid,
        table_schema, table_name, replica_identity, columns, key_columns, from_lsn)
    select %s, 0, 1000 + n, 'public', 't' || n, 1000 + n, 'public', 't' || n, 'd',
        '[{"name": "id", "type_oid": 23, "type_modifier": -1, "type_name": "integer", "base_type_oid": 23, "key": true,
            "attnum": 1}]', '{id}', 1
    from generate_series(1, 30) n
"""


def test_the_ledger_is_asked_as_often_for_thirty_tables_as_for_one(
    database_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lake_ledger(database_dsn, tmp_path / "lake") as book:
        with psycopg.connect(database_dsn, autocommit=True) as log:
            log.execute(FORMS, [SOURCE])
        for count in (30, 3, 30):
            book.publish(*(f"public.t{number}" for number in range(1, count + 1)))
        assert asked(book, [1001], monkeypatch) == asked(book, range(1001, 1031), monkeypatch)


def asked(book: Ledger, oids: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> int:
    """How many queries it takes to know how far the changes of these tables go, and that it is so."""
    rows, count = book.lake.ledger.rows, 0

    def counted(query: str, parameters: tuple[Any, ...] = ()) -> list[dict[str, Any]]:
        nonlocal count
        count += 1
        return rows(query, parameters)

    with monkeypatch.context() as patch:
        patch.setattr(book.lake.ledger, "rows", counted)
        tables = LakeTables(book.lake, book.upto, oids)
    for table in tables.shown():
        place = tables.history(table).place
        assert place is not None and place.lsn == book.upto, table.datasets
    assert len(tables.shown()) == len(oids)
    return count
