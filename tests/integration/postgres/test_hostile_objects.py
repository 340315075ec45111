"""What Postgres does with the objects of tests/fixtures/hostile_objects.py, on which the rules for reading rest."""

from __future__ import annotations

import psycopg

from pipeline.postgres import reading_session, session_settings
from pipeline.postgres.connections import connect
from tests.fixtures.hostile_objects import OBJECTS, Hostile
from tests.fixtures.postgres import Cluster


def test_planning_runs_functions_of_an_owner_and_copying_a_table_runs_none(any_cluster: Cluster):
    with any_cluster.database("hostile") as dsn, psycopg.connect(dsn, autocommit=True, application_name="x") as session:
        hostile = Hostile(any_cluster, dsn)
        hostile.require_no_harm()
        for each in OBJECTS:
            if each.captured and each.kind != "partition key":  # of which COPY takes the partition
                with session.cursor().copy(f"copy app.{each.table} to stdout".encode()) as rows:
                    assert len(list(rows)) == 3
        assert hostile.ran() == set()
        for each in OBJECTS:
            if each.planned:
                session.execute(f"explain select from app.{each.table}".encode())
        assert {what for what, _ in hostile.ran()} == {
            "index expression", "index predicate", "statistics", "partition key"
        }  # fmt: skip
        assert hostile.file.exists()
        superuser = session.execute("select rolsuper from pg_roles where rolname = %s", [hostile.owner]).fetchone()
        assert superuser == (True,)


def test_a_reading_session_begins_each_transaction_as_the_first(any_cluster: Cluster):
    settings = session_settings.SNAPSHOT
    with (
        any_cluster.database("hostile") as dsn,
        connect(dsn, "source", name="reads", settings=settings, prepare_threshold=None) as session,
    ):
        hostile = Hostile(any_cluster, dsn, [each for each in OBJECTS if each.planned])

        def shown() -> list[tuple[str, str]]:
            names = ["search_path", "DateStyle", "extra_float_digits", "bytea_output", "row_security"]
            query = "select name, setting from pg_catalog.pg_settings where name = any(%s) order by 1"
            return session.execute(query, [[*names, "transaction_read_only"]]).fetchall()

        reading_session.begin(session, settings)
        before = shown()
        session.execute("explain select from app.index")
        assert shown() != before
        session.execute("commit")
        assert ("index expression", "reads") in hostile.ran()
        with reading_session.transaction(session, settings):
            assert shown() == before
