"""The schema goes up, down and up again, from every place a user can start it, and says plainly why when it cannot."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from pipeline.config.settings import describe
from pipeline.errors import SchemaError
from pipeline.log import table as log
from pipeline.log import table_setup
from pipeline.log.staging import segments
from pipeline.log.table import EventsTable
from pipeline.postgres import migrations
from tests.fixtures.legacy_tables import first_boot
from tests.fixtures.postgres import Cluster
from tests.fixtures.server import ROOT, environment, run_command
from tests.fixtures.waiting import eventually

UNKNOWN = "9999"
REFERENCE = (Path(__file__).parent / "data" / "schema_125a289.sql").read_text()


@pytest.fixture
def empty_dsn(cluster: Cluster) -> Iterator[str]:
    """A database that was never migrated."""
    with cluster.database("empty") as dsn:
        yield dsn


@pytest.fixture
def another_dsn(cluster: Cluster) -> Iterator[str]:
    with cluster.database("another") as dsn:
        yield dsn


def dump(cluster: Cluster, dsn: str) -> str:
    """The whole schema as pg_dump prints it, owned objects, comments and defaults included."""
    assert cluster.server is not None
    command = [str(cluster.server.bin_dir / "pg_dump"), "--schema-only", dsn]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return "\n".join(line for line in text.splitlines() if not line.startswith(("\\restrict", "\\unrestrict", "--")))


def tables(dsn: str) -> list[str]:
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(
            "select oid::regclass::text from pg_class where relkind in ('r', 'p', 'S', 'v', 'i')"
            " and relnamespace::regnamespace::text in ('public', 'pipeline') order by 1"
        )
        return [row[0] for row in rows]


def migrate_twice_at_once(dsn: str, folder: Path) -> list[str]:
    """What both commands print."""
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(run_command, "migrate", folder=folder, database_dsn=dsn) for _ in range(2)]
        both = [each.result() for each in running]
    assert [each.returncode for each in both] == [0, 0], both
    return [each.stdout for each in both]


def test_up_down_up_gives_the_same_schema(cluster: Cluster, database_dsn: str):
    first, made = dump(cluster, database_dsn), tables(database_dsn)
    assert "sequin_events" in made
    assert migrations.current(database_dsn) == migrations.head()
    migrations.downgrade(database_dsn, "base")
    assert migrations.current(database_dsn) is None
    assert [name for name in tables(database_dsn) if "alembic_version" not in name] == []
    migrations.upgrade(database_dsn)
    assert dump(cluster, database_dsn) == first


def test_a_database_of_125a289_is_like_a_new_one(cluster: Cluster, empty_dsn: str, another_dsn: str):
    with psycopg.connect(another_dsn) as restored:
        restored.execute(REFERENCE.encode())
        restored.execute("insert into pipeline.alembic_version values ('0013')")
    for dsn in (empty_dsn, another_dsn):
        first_boot(dsn)
        assert migrations.current(dsn) == migrations.head()
    assert dump(cluster, another_dsn) == dump(cluster, empty_dsn)


@pytest.mark.parametrize(
    "change", [migrations.upgrade, lambda dsn: migrations.downgrade(dsn, "base")], ids=["up", "down"]
)
def test_an_older_database_is_told_which_version_brings_it_here(database_dsn: str, change: Callable[[str], None]):
    with psycopg.connect(database_dsn) as connection:
        connection.execute("update pipeline.alembic_version set version_num = '0012'")
    before = tables(database_dsn)
    with pytest.raises(
        SchemaError, match=r"at revision '0012', from before version 0.1.0, .* migrates from revision 0013 on; start"
    ):
        change(database_dsn)
    assert migrations.current(database_dsn) == "0012"
    assert tables(database_dsn) == before


def test_offline_mode_prints_what_makes_the_same_schema(cluster: Cluster, empty_dsn: str, database_dsn: str):
    alembic = [sys.executable, "-m", "alembic", "upgrade", "head", "--sql"]
    printed = subprocess.run(alembic, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute("create schema pipeline")
        connection.execute(printed.encode())
    assert migrations.current(empty_dsn) == migrations.head()
    assert dump(cluster, empty_dsn) == dump(cluster, database_dsn)


def test_the_previous_version_cannot_use_consumers_without_collapsing(database_dsn: str):
    with psycopg.connect(database_dsn, autocommit=True) as connection:
        connection.execute("select pipeline.create_consumer('history', collapse => false)")
        with pytest.raises(Exception, match="does not know: history"):
            migrations.downgrade(database_dsn, "0023")
        assert migrations.current(database_dsn) == "0024"
        connection.execute("select pipeline.drop_consumer('history')")
    migrations.downgrade(database_dsn, "0023")
    migrations.upgrade(database_dsn)
    with psycopg.connect(database_dsn, autocommit=True) as connection:
        connection.execute("select pipeline.create_consumer('history', collapse => false)")


def test_segments_from_before_stage_values_uncompressed_but_those_in_use(database_dsn: str):
    query = """
        select distinct attrelid::regclass::text, attstorage from pg_attribute
        where attrelid = any (%s::regclass[]) and attname in ('record', 'changes')
    """
    names = ["pipeline.wal_events_00001", "pipeline.wal_events_00002", "wal_events"]
    with psycopg.connect(database_dsn, autocommit=True) as connection, psycopg.connect(database_dsn) as reader:
        migrations.downgrade(database_dsn, "0024")
        for number in (1, 2):
            connection.execute(segments.create(number))
        reader.execute("select from pipeline.wal_events_00001")
        migrations.upgrade(database_dsn)
        storage = connection.execute(query, [names]).fetchall()
    assert dict(storage) == dict(zip(names, ("x", "e", "e"), strict=True))


def test_partitions_that_were_captured_count_as_seen(database_dsn: str):
    with psycopg.connect(database_dsn, autocommit=True) as connection:
        migrations.downgrade(database_dsn, "0037")
        connection.execute(
            """insert into pipeline.sources (id, system_identifier, database_name, slot)
            values (gen_random_uuid(), '1', 's', 's');
            insert into pipeline.snapshot_tables (source_id, table_oid, epoch, table_schema, table_name, keyed)
            select id, oid, 0, 'public', 't' || oid, true from pipeline.sources, unnest('{1, 2, 3}'::int[]) oid;
            insert into pipeline.captured_tables
                (source_id, epoch, table_oid, table_name, joined_lsn, root_oid, left_at)
            select id, 0, t.oid, 'public.l' || t.oid, 5, t.root, t.left_at from pipeline.sources, (values
                (1, 1, null), (11, 1, null), (12, 1, now()), (2, 2, null), (21, null, null)) t (oid, root, left_at)"""
        )
        migrations.upgrade(database_dsn)
        looks = connection.execute("select root_oid, after_relation, unknown from pipeline.partition_looks").fetchall()
        stored = connection.execute("select root_oid, leaf_oid, leaf_name, attached_by from pipeline.partitions")
        assert (looks, stored.fetchall()) == ([(1, 0, False)], [(1, 11, "public.l11", "")])


def test_a_second_upgrade_changes_nothing(cluster: Cluster, database_dsn: str):
    before = dump(cluster, database_dsn)
    migrations.upgrade(database_dsn)
    assert dump(cluster, database_dsn) == before


def test_another_events_table_is_like_the_default_one(database_dsn: str):
    """The default one is made by migrations, since it may exist already; the others by one statement."""
    other = EventsTable("public", "other_events")
    with psycopg.connect(database_dsn, autocommit=True) as connection:
        table_setup.ensure(connection, other)
        assert shape(connection, other) == shape(connection, log.DEFAULT)


def shape(connection: psycopg.Connection, table: EventsTable) -> list[object]:
    """Columns, indexes, constraints and partitioning as Postgres shows them, without names."""
    queries = (
        "select attname, format_type(atttypid, atttypmod), attnotnull, attcollation::regcollation::text,"
        " pg_get_expr(adbin, adrelid) from pg_attribute left join pg_attrdef on adrelid = attrelid and adnum = attnum"
        " where attrelid = %(table)s::regclass and attnum > 0 order by attnum",
        "select indisunique, split_part(pg_get_indexdef(indexrelid), ' ON ', 2) from pg_index"
        " where indrelid = %(table)s::regclass order by 2",
        "select contype, pg_get_constraintdef(oid) from pg_constraint where conrelid = %(table)s::regclass order by 2",
        "select pg_get_partkeydef(%(table)s::regclass)",
        "select deptype, objid::regclass from pg_depend where refobjid = %(table)s::regclass and refobjsubid = 1"
        " and classid = 'pg_class'::regclass and objid in (select seqrelid from pg_sequence)",
    )
    found = [connection.execute(query, {"table": str(table)}).fetchall() for query in queries]
    return [str(row).replace(table.name, "T") for rows in found for row in rows]


def test_alembic_in_the_repository_does_what_the_server_does(cluster: Cluster, empty_dsn: str, database_dsn: str):
    command = [sys.executable, "-m", "alembic", "upgrade", "head"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment({"database_dsn": empty_dsn}), capture_output=True, text=True
    )
    assert done.returncode == 0, done
    assert f"Alembic uses the pipeline database {describe(empty_dsn)}\n" in done.stderr
    assert dump(cluster, empty_dsn) == dump(cluster, database_dsn)
    assert migrations.current(empty_dsn) == migrations.head()


def test_alembic_without_a_dsn_makes_no_postgres(tmp_path: Path):
    command = [sys.executable, "-m", "alembic", "upgrade", "head"]
    given = {"source_dsn": "host=/nowhere", "data_dir": tmp_path}
    done = subprocess.run(command, cwd=ROOT, env=environment(given), capture_output=True, text=True)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert "PIPELINE_DATABASE_DSN is not set" in done.stdout and "run `pipeline migrate`" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_pipeline_migrate_with_one_dsn_makes_no_postgres(database_dsn: str, tmp_path: Path):
    done = run_command("migrate", folder=tmp_path, database_dsn=database_dsn, source_dsn=None, data_dir=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"already at {migrations.head()}\n"), done
    assert list(tmp_path.iterdir()) == []


def test_two_migrations_at_once_both_succeed(cluster: Cluster, empty_dsn: str, database_dsn: str, tmp_path: Path):
    shown = migrate_twice_at_once(empty_dsn, tmp_path)
    assert all(migrations.head() in text for text in shown), shown
    assert dump(cluster, empty_dsn) == dump(cluster, database_dsn)


def test_a_migration_waits_for_another_and_then_gives_up_with_a_plain_line(
    empty_dsn: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(migrations, "LOCK_TIMEOUT", "200ms")
    with migrations.engine(empty_dsn).connect() as holder, migrations.migration_lock(holder):
        with pytest.raises(SchemaError, match=r"^a migration waited 200ms for a lock that another session holds"):
            migrations.upgrade(empty_dsn)
        assert tables(empty_dsn) == []


def test_a_readers_lock_stops_a_migration_with_a_plain_line(database_dsn: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(migrations, "LOCK_TIMEOUT", "200ms")
    with psycopg.connect(database_dsn) as reader:
        reader.execute("select from public.sequin_events")
        with pytest.raises(SchemaError, match=r"waited 200ms for a lock .* end that session"):
            migrations.downgrade(database_dsn, "base")
    assert migrations.current(database_dsn) == migrations.OLDEST, (
        "each revision is a transaction; only the first needs this lock"
    )
    migrations.downgrade(database_dsn, "base")
    assert migrations.current(database_dsn) is None


def test_a_migration_goes_on_when_the_reader_has_gone(database_dsn: str):
    with psycopg.connect(database_dsn) as reader, psycopg.connect(database_dsn, autocommit=True) as watcher:
        reader.execute("select from public.sequin_events")
        migration = threading.Thread(target=migrations.downgrade, args=[database_dsn, "base"])
        migration.start()
        waiting = "select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        eventually(lambda: watcher.execute(waiting).fetchone() is not None)
        reader.rollback()
        migration.join()
    assert migrations.current(database_dsn) is None


@pytest.mark.parametrize(
    "change", [migrations.upgrade, lambda dsn: migrations.downgrade(dsn, "base")], ids=["up", "down"]
)
def test_a_revision_of_a_later_version_is_refused_and_nothing_changes(database_dsn: str, change: Callable[[str], None]):
    with psycopg.connect(database_dsn) as connection:
        connection.execute("update pipeline.alembic_version set version_num = %s", [UNKNOWN])
    before = tables(database_dsn)
    with pytest.raises(SchemaError, match=rf"'{UNKNOWN}', which this version of the server does not know"):
        change(database_dsn)
    assert migrations.current(database_dsn) == UNKNOWN
    assert tables(database_dsn) == before


def test_the_previous_version_cannot_use_consumers_of_other_events_tables(database_dsn: str):
    with psycopg.connect(database_dsn, autocommit=True) as connection:
        connection.execute(
            "insert into pipeline.consumers (name, kind, position, events_table) values ('audit', 'cursor', 0, 'a.b')"
        )
        with pytest.raises(Exception, match="does not know: audit"):
            migrations.downgrade(database_dsn, "0030")
        assert migrations.current(database_dsn) == "0032"
        connection.execute("select pipeline.drop_consumer('audit')")
    migrations.downgrade(database_dsn, "0030")
    assert migrations.current(database_dsn) == "0030"
