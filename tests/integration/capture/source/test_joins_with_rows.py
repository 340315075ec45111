"""Whether a table that joins had rows: a row that is written meanwhile may be an old one."""

from __future__ import annotations

from collections.abc import Collection

import psycopg
import pytest

from pipeline.capture.source import captured_tables


@pytest.mark.parametrize(("meanwhile", "was_empty"), [("update t set n = 2", False), ("delete from t", True)])
def test_a_row_that_is_written_while_its_table_joins(
    source_dsn: str, monkeypatch: pytest.MonkeyPatch, meanwhile: str, was_empty: bool
) -> None:
    look_at_those_that_left = captured_tables.find_existing

    def write_first(source: psycopg.Connection, tables: Collection[int]) -> set[int]:
        with psycopg.connect(source_dsn, autocommit=True) as other:
            other.execute(meanwhile.encode())
        return look_at_those_that_left(source, tables)

    with psycopg.connect(source_dsn, autocommit=True) as source:
        source.execute("create table t (id int primary key, n int, big text)")
        source.execute("insert into t values (1, 1, 'never sent')")
        row = source.execute("select 't'::regclass::oid::bigint").fetchone()
        assert row is not None
        monkeypatch.setattr(captured_tables, "find_existing", write_first)
        changed = captured_tables.find_change(source, {}, {row[0]: "public.t"})
    assert changed is not None
    assert changed.first_rows(row[0])["was_empty"] is was_empty
