"""Where a follower begins in the log: at its head, at its first event, or where it was; and what the log must have."""

from __future__ import annotations

import pytest

from pipeline.followers import registry
from pipeline.followers.operating import status
from tests.fixtures.followers import INSTALLED, TABLES, Adding, run
from tests.fixtures.small_log import add_inserts


@pytest.fixture
def written(adding: Adding) -> int:
    """The head of a log with events."""
    return add_inserts(adding.known.log, 50)


def test_a_copy_of_the_source_begins_at_the_head(adding: Adding, follower_dsn: str, written: int) -> None:
    found = adding.add(follower_dsn).follower
    assert (found.seq, found.made_seq, found.lag_seqs) == (written, written, 0)


def test_a_copy_of_the_log_begins_at_its_first_event(adding: Adding, follower_dsn: str, written: int) -> None:
    run(follower_dsn, TABLES)
    whole(adding)
    found = adding.add(follower_dsn, copy="log").follower
    assert (found.seq, found.made_seq, found.lag_seqs) == (0, written, written)


def test_a_log_without_a_table_from_its_first_row(adding: Adding, follower_dsn: str) -> None:
    said = adding.refused(follower_dsn, copy="log")
    assert said.startswith("--copy log: the log does not have public.")
    assert "read what is missing with `pipeline backfill start public." in said
    assert said.endswith("or use --copy source")


def test_a_log_with_an_unsettled_rewrite(adding: Adding, follower_dsn: str) -> None:
    run(follower_dsn, TABLES)
    whole(adding)
    adding.known.log.execute("""
        insert into pipeline.relations (source_id, epoch, relation_oid, relation_schema, relation_name, table_oid,
            table_schema, table_name, replica_identity, columns, key_columns, from_lsn)
        select source_id, 0, table_oid, table_schema, table_name, table_oid, table_schema, table_name, 'd', '[]', '{}',
            1
        from pipeline.snapshot_tables;
        insert into pipeline.rewrites (source_id, epoch, relation_oid, table_schema, table_name, columns, kind, version)
        select source_id, 0, table_oid, table_schema, table_name, '{state}', 'type', '1'
        from pipeline.snapshot_tables where table_name = 'orders'
    """)
    said = adding.refused(follower_dsn, copy="log")
    assert said.startswith("--copy log: DDL has changed values of public.orders without events; run `pipeline backfill")
    adding.add(follower_dsn, copy="log", tables=("public.parted",))


def test_a_log_whose_first_events_are_dropped(adding: Adding, follower_dsn: str, written: int) -> None:
    run(follower_dsn, TABLES)
    whole(adding)
    drop(adding, 20)
    said = adding.refused(follower_dsn, copy="log")
    assert said == "--copy log: retention has dropped the log's events up to seq 19; use --copy source"
    assert adding.add(follower_dsn).follower.seq == written


def test_what_is_dropped_while_it_is_added(
    adding: Adding, follower_dsn: str, written: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(follower_dsn, TABLES)
    whole(adding)
    add = registry.add

    def dropping(*given: object) -> None:
        drop(adding, written)
        add(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(registry, "add", dropping)
    assert "retention has dropped" in adding.refused(follower_dsn, copy="log")


def test_one_that_was_there_goes_on_where_it_was(adding: Adding, follower_dsn: str, written: int) -> None:
    run(follower_dsn, TABLES + INSTALLED.format(1))
    row = adding.known.log.execute("select id from pipeline.sources").fetchone()
    assert row is not None
    run(
        follower_dsn, f"insert into pipeline_follower.position values ('{row[0]}', 'reports', 0, 30, 300, now(), now())"
    )
    run(
        follower_dsn,
        "insert into pipeline_follower.position values (gen_random_uuid(), 'reports', 0, 7, 7, now(), now())",
    )
    found = adding.add(follower_dsn, copy="none").follower
    assert (found.seq, found.commit_lsn, found.lag_seqs) == (30, 300, written - 30)
    status.remove(adding.known.log, "reports")
    said = adding.refused(follower_dsn)
    assert "it has been a follower of that name, and is at seq 30; go on from there with --copy none, choose" in said
    assert (
        "or delete that position there: delete from pipeline_follower.position where (source_database_id, follower) ="
        in said
    )
    added = adding.add(follower_dsn, "other", copy="none")
    assert added.follower.seq == written
    assert 'it has the position of an earlier follower "reports"; to continue' in added.warnings[0]
    status.remove(adding.known.log, "other")
    drop(adding, 40)
    forget = said.rpartition(": ")[2]
    said = adding.refused(follower_dsn, copy="none")
    assert "it is at seq 30, and retention has dropped the log's events up to seq 39; use --copy source" in said
    run(follower_dsn, forget)
    assert adding.add(follower_dsn).follower.seq == written


def test_one_that_was_never_there_begins_at_the_head(adding: Adding, follower_dsn: str, written: int) -> None:
    run(follower_dsn, TABLES)
    assert adding.add(follower_dsn, copy="none").follower.seq == written


def whole(adding: Adding) -> None:
    """The log has every table."""
    adding.known.log.execute("update pipeline.snapshot_tables set complete_seq = 1")


def drop(adding: Adding, below: int) -> None:
    """As retention records it."""
    adding.known.log.execute(
        "insert into pipeline.retention (events_table, dropped_below) values ('public.sequin_events', %s)"
        " on conflict (events_table) do update set dropped_below = excluded.dropped_below",
        (below,),
    )
