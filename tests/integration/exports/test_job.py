"""Runs of exports against a real log: when there is none to do, when it cannot begin, and what the rows say of it."""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pipeline.cli.render.status import show_status
from pipeline.config.settings import Config, load
from pipeline.errors import ExportBusyError, ExportFailedError, ExportStoppedError, SchemaError
from pipeline.exports import child, java, job, ledger
from pipeline.exports import status as export_status
from pipeline.exports.ledger import ExportRun
from pipeline.operate import metrics
from pipeline.operate.status import PipelineStatus
from pipeline.server import schedule
from tests.fixtures.server import run_command
from tests.fixtures.small_log import add_inserts, add_table, small_log
from tests.fixtures.waiting import eventually

Log = psycopg.Connection[tuple[Any, ...]]
LAKE = "11111111-0000-0000-0000-000000000000"


@pytest.fixture
def export_log(database_dsn: str) -> Iterator[Log]:
    """A hundred events of public.orders."""
    with small_log(database_dsn, 100) as connection:
        yield connection


@pytest.fixture
def config(tmp_path: Path, database_dsn: str) -> Config:
    return load(data_dir=tmp_path / "data", database_dsn=database_dsn, spark_master="local[2]")


def run(config: Config) -> job.ExportOutcome:
    return job.export(config, "command", lambda _: None, lambda: False)


def add_lake(export_log: Log, config: Config) -> None:
    export_log.execute(
        "insert into pipeline.lakes (id, directory, events_table) values (%s, %s, 'public.sequin_events')",
        [LAKE, str(config.exports)],
    )


def add_export(export_log: Log, after: int, upto: int, *, key: str = '["id"]') -> None:
    """A range that is in the lake."""
    export_log.execute(
        "insert into pipeline.exports (lake_id, after_seq, upto_seq, state, rows, bytes, holder, committed_at, files,"
        " schemas) values (%s, %s, %s, 'committed', 1, 1, 'test', clock_timestamp(), %s, %s)",
        [
            LAKE,
            after,
            upto,
            f'[{{"dataset": "public.orders", "schema": 1, "last_seq": {upto - 1}}}]',
            f'{{"public.orders": {{"1": {{"key": {key}}}}}}}',
        ],
    )


def add_manifest(config: Config) -> None:
    assert isinstance(config.exports, Path)
    config.exports.mkdir(parents=True)
    (config.exports / "manifest.json").write_text("{}")


def fold(export_log: Log, upto: int, lake: str = LAKE) -> None:
    """As `export.py` does once the states hold everything."""
    export_log.execute("update pipeline.lakes set folded_upto = %s where id = %s", [upto, lake])


def runs(export_log: Log) -> list[ExportRun]:
    return ledger.runs(export_log, 10)


def test_an_empty_log_is_nothing_new(config: Config, database_dsn: str) -> None:
    with small_log(database_dsn, 0) as export_log:
        assert run(config) == job.ExportOutcome(0)
        assert runs(export_log) == []


def test_nothing_new_starts_nothing(export_log: Log, config: Config) -> None:
    add_lake(export_log, config)
    add_export(export_log, 0, 100)
    fold(export_log, 100)
    add_manifest(config)
    assert run(config) == job.ExportOutcome(100)
    assert runs(export_log) == []
    assert not (config.data_dir / "logs").exists()


def test_a_log_that_has_jumped_is_something_to_do(export_log: Log, config: Config) -> None:
    add_lake(export_log, config)
    add_export(export_log, 0, 100)
    fold(export_log, 100)
    add_manifest(config)
    export_log.execute("insert into pipeline.seq_jumps values ('public.sequin_events', 100, 200, 'a test')")
    with pytest.raises(ExportFailedError, match="is not a manifest of a lake"):  # the script has begun
        run(config)
    (config.data_dir / "exports/manifest.json").write_text('{"jump": 200}')
    assert run(config) == job.ExportOutcome(100)


def test_a_lake_that_is_gone(export_log: Log, config: Config) -> None:
    add_lake(export_log, config)
    add_export(export_log, 0, 60)
    with pytest.raises(
        ExportFailedError, match=r"exports is empty, but events up to seq 60 were exported to it; restore or"
    ):
        run(config)
    assert runs(export_log) == []
    status = export_status.read(config, export_log)
    assert status is not None
    assert (status.exported_seq, status.behind_seqs) == (60, 40)
    assert status.problem is not None
    assert "were exported to it" in status.problem


def test_how_far_the_lake_is(export_log: Log, config: Config) -> None:
    assert (ledger.window(export_log, config).behind, ledger.window(export_log, config).known) == (100, False)
    add_lake(export_log, config)
    add_export(export_log, 0, 60)
    window = ledger.window(export_log, config)
    assert (window.head, window.exported_upto, window.known, window.holder) == (100, 60, True, None)


@pytest.mark.parametrize(("folded", "behind"), [(100, False), (98, True), (None, True)])
def test_states_that_lack_changes_are_something_to_do(
    export_log: Log, config: Config, folded: int | None, behind: bool
) -> None:
    add_lake(export_log, config)
    add_export(export_log, 0, 100)
    if folded:
        fold(export_log, folded)
    ledger.finish_run(export_log, ledger.begin_run(export_log, "command"), "done", None)  # perhaps to another lake
    assert ledger.window(export_log, config).anything_new is behind


def test_what_is_asked_every_time_costs_the_same_after_many_exports(export_log: Log, config: Config) -> None:
    """Blocks that are read, of a lake of six exports and of fifteen hundred, with fifty tables each."""
    add_lake(export_log, config)
    export_log.execute(UNDISTURBED)
    export_log.execute(MANY, [0, 6])
    export_log.execute("analyze")
    few = blocks(export_log, config)
    export_log.execute(MANY, [6, 1500])
    export_log.execute("analyze")
    assert blocks(export_log, config) <= few + 12, "an index is a level or two higher"
    assert ledger.window(export_log, config).exported_upto == 150_000


UNDISTURBED = """
    do $$ declare found regclass; begin
        for found in select oid from pg_class where relnamespace = 'pipeline'::regnamespace and relkind = 'r'
            and (relname like 'export%' or relname = 'lakes')
        loop execute format('alter table %s set (autovacuum_enabled = off, toast.autovacuum_enabled = off)', found);
        end loop;
    end $$
"""
"""What autovacuum reads would count."""
MANY = """
    with run as (
        insert into pipeline.export_runs (trigger, state, holder, finished_at)
        select 'schedule', 'done', 'test', clock_timestamp() from generate_series(%s + 1, %s) returning id
    )
    insert into pipeline.exports (lake_id, run_id, after_seq, upto_seq, state, rows, bytes, holder, committed_at, files)
    select '11111111-0000-0000-0000-000000000000', id, (id - 1) * 100, id * 100, 'committed', 1, 1, 'test', now(),
        (select jsonb_agg(jsonb_build_object('dataset', 'public.t' || n, 'schema', 1, 'last_seq', id * 100, 'sha256',
            sha256(n::text::bytea))) from generate_series(1, 50) n)
    from run
"""


def blocks(export_log: Log, config: Config) -> int:
    """All that the status of exports reads of the ledger."""
    export_log.execute("select pg_stat_force_next_flush()")
    before = export_log.execute(BLOCKS).fetchone()
    export_status.read(config, export_log)
    export_log.execute("select pg_stat_force_next_flush()")
    after = export_log.execute(BLOCKS).fetchone()
    assert before is not None and after is not None
    return int(after[0] - before[0])


BLOCKS = """
    select sum(coalesce(heap_blks_hit, 0) + coalesce(heap_blks_read, 0) + coalesce(idx_blks_hit, 0)
        + coalesce(idx_blks_read, 0) + coalesce(toast_blks_hit, 0) + coalesce(toast_blks_read, 0))
    from pg_statio_user_tables where schemaname = 'pipeline' and (relname like 'export%' or relname = 'lakes')
"""


def test_a_second_exporter_is_refused_at_once(
    export_log: Log, config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    add_lake(export_log, config)
    export_log.execute("select pg_advisory_lock(hashtextextended('pipeline lake ' || %s, 0))", [LAKE])
    export_log.execute(
        "insert into pipeline.exports (lake_id, after_seq, upto_seq, holder) values (%s, 0, 100, 'elsewhere (pid 7)')",
        [LAKE],
    )
    with pytest.raises(
        ExportBusyError, match=r"an export is already running: elsewhere \(pid 7\); wait for it, or end it"
    ):
        run(config)
    with caplog.at_level(logging.INFO):
        schedule.export(config, lambda: False)
    assert "elsewhere (pid 7)" in caplog.text
    assert runs(export_log) == []


def test_a_command_waits_for_a_running_export(export_log: Log, config: Config, database_dsn: str) -> None:
    add_lake(export_log, config)
    add_export(export_log, 0, 60)
    add_manifest(config)
    told: list[child.ScriptEvent] = []
    with psycopg.connect(database_dsn, autocommit=True) as other, ThreadPoolExecutor() as threads:
        other.execute("select pg_advisory_lock(hashtextextended('pipeline lake ' || %s, 0))", [LAKE])
        other.execute(
            "insert into pipeline.exports (lake_id, after_seq, upto_seq, holder)"
            " values (%s, 60, 100, 'elsewhere (pid 7)')",
            [LAKE],
        )
        waiting = threads.submit(job.export, config, "command", told.append, lambda: False, wait=True)
        eventually(lambda: told)
        with pytest.raises(ExportBusyError):  # the one that waits is the next
            run(config)
        other.execute("update pipeline.exports set state = 'failed' where state = 'writing'")
        add_export(export_log, 60, 100)
        fold(export_log, 100)
        other.close()
        assert waiting.result(60) == job.ExportOutcome(100)
    assert told[0] == {"event": "waiting", "holder": "elsewhere (pid 7)", "exported_upto": 60, "head": 100}
    assert runs(export_log) == []


def test_two_exports_never_start_their_scripts_at_once(export_log: Log, config: Config, database_dsn: str) -> None:
    with psycopg.connect(database_dsn, autocommit=True) as other:
        assert ledger.take_turn(other, config)
        ledger.begin_run(other, "schedule")
        [running] = runs(export_log)
        with pytest.raises(ExportBusyError, match=re.escape(f"an export is already running: {running.holder}; wait")):
            run(config)
    assert len(runs(export_log)) == 1


def test_an_export_that_waits_can_be_stopped(export_log: Log, config: Config) -> None:
    assert ledger.take_turn(export_log, config)
    with pytest.raises(ExportStoppedError, match="another export, which continues"):
        job.export(config, "command", lambda _: None, lambda: True, wait=True)


def test_a_stopped_run_is_no_failure(export_log: Log, config: Config, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ExportStoppedError, match="nothing is lost"):
        job.export(config, "command", lambda _: None, lambda: True)
    assert [each.state for each in runs(export_log)] == ["stopped"]
    now = PipelineStatus(exports=export_status.read(config, export_log))
    assert "pipeline_export_failed 0.0" in metrics.render(now).decode()
    show_status(now)
    assert "last export" not in capsys.readouterr().out


def test_an_export_command_that_does_not_wait(export_log: Log, config: Config, database_dsn: str) -> None:
    assert ledger.take_turn(export_log, config)
    settings = {"database_dsn": database_dsn, "data_dir": config.data_dir}
    done = run_command("export", "run", "--no-wait", folder=config.data_dir.parent, **settings)
    assert (done.returncode, done.stdout) == (1, "looking for new events\n")
    assert done.stderr == "pipeline: an export is already running: somebody; wait for it, or end it\n"


def test_a_script_finds_its_modules_as_the_server_starts_it(
    export_log: Log, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "_spark"
    installed.mkdir()
    (installed / "only_beside_it.py").write_text("SEQ = 7")
    (installed / "export.py").write_text(
        """import json, only_beside_it; print(json.dumps({"event": "done", "exported_upto": only_beside_it.SEQ}))"""
    )
    monkeypatch.setattr(job, "scripts", lambda: installed)
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    assert run(config).exported_upto == 7


def test_an_events_table_that_vanished(export_log: Log, config: Config) -> None:
    export_log.execute("drop table public.sequin_events cascade")
    with pytest.raises(
        ExportFailedError, match=r"the events table public.sequin_events does not exist; restore it, or"
    ):
        run(config)
    found = export_status.read(config, export_log)
    assert found is not None
    assert found.problem is not None
    assert "does not exist" in found.problem


def test_no_java(export_log: Log, config: Config, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "find_spec", lambda _: None)
    with pytest.raises(ExportFailedError, match="Spark needs Java 17 or newer, and there is none; install one"):
        run(config)
    [failed] = runs(export_log)
    assert (failed.trigger, failed.state) == ("command", "failed")
    assert failed.reason is not None
    assert failed.reason.startswith("Spark needs Java 17")


def test_a_master_that_does_not_answer(export_log: Log, config: Config) -> None:
    with closing(socket.socket()) as bound:  # no other process takes the port, and none listens there
        bound.bind(("127.0.0.1", 0))
        master = f"spark://127.0.0.1:{bound.getsockname()[1]}"
        config = config.model_copy(update={"spark_master": master})
        with pytest.raises(ExportFailedError, match=rf"Spark master {master} does not answer: Connection refused"):
            run(config)
    [failed] = runs(export_log)
    assert failed.log == str(config.data_dir / "logs" / f"export-{failed.id}.log")
    assert '"event": "failed"' in Path(failed.log).read_text()


def test_a_folder_of_somebody_else(export_log: Log, config: Config) -> None:
    assert isinstance(config.exports, Path)
    config.exports.mkdir(parents=True)
    (config.exports / "notes.txt").write_text("mine")
    with pytest.raises(
        ExportFailedError, match=r"holds notes.txt, which is not ours; name an empty PIPELINE_EXPORT_DIR"
    ):
        run(config)
    assert (config.exports / "notes.txt").read_text() == "mine"
    status = export_status.read(config, export_log)
    assert status is not None
    assert status.last_run == replace(runs(export_log)[0])
    assert (status.exported_seq, status.behind_seqs, status.last_success) == (None, 100, None)


def test_a_run_counts_as_running_while_its_session_lives(export_log: Log, database_dsn: str) -> None:
    with psycopg.connect(database_dsn, autocommit=True) as session:
        ledger.begin_run(session, "schedule")
        assert [each.state for each in runs(export_log)] == ["running"]
    eventually(lambda: [(each.state, each.reason) for each in runs(export_log)] == [("failed", "its process ended")])
    ledger.begin_run(export_log, "command")
    assert [(each.state, each.finished_at is None) for each in runs(export_log)] == [
        ("running", True),
        ("failed", False),
    ]


def test_the_newest_logs_are_kept(config: Config) -> None:
    folder = config.data_dir / "logs"
    folder.mkdir(parents=True)
    for number in range(60):
        path = folder / f"export-{number}.log"
        path.write_text("")
        os.utime(path, (number, number))
    (folder / "state-1.log").write_text("")
    job.log_file(config, "export-60").write_text("")
    assert {path.name for path in folder.iterdir()} == {"state-1.log", *(f"export-{n}.log" for n in range(11, 61))}


def test_tables_without_a_key_are_named(export_log: Log, config: Config) -> None:
    add_table(export_log, "notes", 16400, keyed=False)
    add_inserts(export_log, 10, "notes", 16400)
    status = export_status.read(config, export_log)
    assert status is not None
    assert status.without_state == ["public.notes"]


WAITING = """
    with tables as (
        insert into pipeline.export_tables (lake_id, source_id, source_epoch, table_oid, dataset, shows, waits_since)
        select %(lake)s, gen_random_uuid(), 0, n, 'public.t' || n, 10 * n, now() - n * interval '1 hour'
        from generate_series(1, 3) n returning id, lake_id, dataset, shows
    )
    insert into pipeline.export_states (lake_id, table_id, dataset, seq, state, schema_version, columns, buckets, rows)
    select lake_id, id, dataset, seq, 'committed', 0, '{}', 1, 1 from tables, unnest(array[shows - 5, shows]) seq
"""


def test_current_states_that_wait_are_told_and_are_something_to_do_in_time(export_log: Log, config: Config) -> None:
    add_lake(export_log, config)
    add_export(export_log, 0, 100)
    fold(export_log, 100)
    export_log.execute(WAITING, {"lake": LAKE})
    status = export_status.read(config, export_log)
    assert (status.waiting, status.waiting_seq) == (3, 10)
    [(oldest,)] = export_log.execute("select min(waits_since) from pipeline.export_tables").fetchall()
    assert status.waiting_since == oldest
    for age, due in [("4h", False), ("3h", True), ("0", True), (None, False)]:
        asked = config.model_copy(update={"export_latest_age": age})
        assert ledger.window(export_log, asked).states_behind is due
    export_log.execute("update pipeline.export_tables set dataset = null, waits_since = null")
    assert export_status.read(config, export_log).waiting == 0
    assert not ledger.window(export_log, config).states_behind


def test_a_database_that_was_never_migrated(source_dsn: str, config: Config) -> None:
    with (
        psycopg.connect(source_dsn, autocommit=True) as connection,
        pytest.raises(SchemaError, match="run `pipeline migrate` first"),
    ):
        ledger.window(connection, config)
