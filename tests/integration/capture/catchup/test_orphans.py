"""Copies of our slot that a killed server left at the source: found, listed, removed; what is not ours stays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import pq
from psycopg.pq import abc

from pipeline.capture.catchup import orphans
from pipeline.capture.source import slots
from pipeline.postgres import connections, session_settings
from pipeline.postgres.connections import Connection
from tests.fixtures.server import run_command


@pytest.fixture
def source(source_dsn: str, slot_name: str) -> Iterator[Connection]:
    """With the slot that may have copies."""
    with connections.connect(source_dsn, "source", settings=session_settings.SERVER) as connection:
        slots.create(connection, slot_name)
        yield connection


@contextmanager
def copy_held_by(dsn: str, anchor: str, name: str) -> Iterator[abc.PGconn]:
    """A temporary copy, as a worker that hangs still holds it."""
    connection = pq.PGconn.connect(f"{dsn} replication=database".encode())
    try:
        result = connection.exec_(f"select pg_copy_logical_replication_slot('{anchor}', '{name}', true)".encode())
        assert result.status == pq.ExecStatus.TUPLES_OK, result.error_message
        yield connection
    finally:
        connection.finish()


def copy(source: Connection, anchor: str, name: str) -> None:
    source.execute("select pg_copy_logical_replication_slot(%s, %s, false)", [anchor, name])


def names(source: Connection) -> set[str]:
    query = "select slot_name from pg_replication_slots where database = current_database()"
    return {name for (name,) in source.execute(query)}


def test_what_is_left_over_goes_and_whoever_reads_it_is_ended(source: Connection, slot_name: str) -> None:
    copy(source, slot_name, f"{slot_name}_part_12")
    with copy_held_by(source.info.dsn, slot_name, f"{slot_name}_part_1") as reader:
        assert orphans.remove_orphans(source, slot_name) == [f"{slot_name}_part_1", f"{slot_name}_part_12"]
        assert reader.exec_(b"select 1").status == pq.ExecStatus.FATAL_ERROR
    assert names(source) == {slot_name}


def test_slots_of_others_stay(source: Connection, slot_name: str) -> None:
    others = {f"{slot_name}_part_", f"{slot_name}_part_0", f"{slot_name}_part_1x", f"x{slot_name}_part_1"}
    for name in others:
        copy(source, slot_name, name)
    assert orphans.remove_orphans(source, slot_name) == []
    assert names(source) == {slot_name, *others}


def test_slots_of_workers_that_are_at_work_stay(source: Connection, slot_name: str) -> None:
    for worker in (1, 2):
        copy(source, slot_name, slots.part_name(slot_name, worker))
    assert orphans.remove_orphans(source, slot_name, working=[2]) == [f"{slot_name}_part_1"]
    assert names(source) == {slot_name, f"{slot_name}_part_2"}


def test_one_that_may_not_be_removed_is_left_with_a_warning(
    source: Connection, slot_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    role = f"weak_{slot_name}"
    source.execute(f"create role {role} replication".encode())
    try:
        with copy_held_by(source.info.dsn, slot_name, f"{slot_name}_part_1"):
            source.execute(f"set role {role}".encode())
            assert orphans.remove_orphans(source, slot_name) == []
            assert f'slot "{slot_name}_part_1" is left over: ' in caplog.text
    finally:
        source.execute("reset role")
        source.execute(f"drop role {role}".encode())


def test_they_are_listed(
    source: Connection, slot_name: str, source_dsn: str, database_dsn: str, tmp_path: Path
) -> None:
    settings = {"source_dsn": source_dsn, "database_dsn": database_dsn, "slot": slot_name}
    shown = run_command("slots", "list", "--orphans", folder=tmp_path, **settings)
    assert (shown.returncode, shown.stdout) == (0, "no orphaned slots at the source\n")
    copy(source, slot_name, f"{slot_name}_part_2")
    listed = run_command("slots", "list", "--orphans", "--json", folder=tmp_path, **settings)
    found = json.loads(listed.stdout)["data"]
    assert [(slot["name"], slot["active_pid"]) for slot in found] == [(f"{slot_name}_part_2", None)]


def test_a_source_that_was_never_replicated_from_has_none_at_work(database_dsn: str, source_dsn: str) -> None:
    for dsn in (database_dsn, source_dsn):  # migrated, and never migrated
        with psycopg.connect(dsn, autocommit=True) as connection:
            assert orphans.find_working(connection, None) == set()
