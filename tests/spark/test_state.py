"""The current state: equal to a replay of the log, one bucket at a time, whole whatever crashes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from lake import ledger
from lake.changes import exporter
from lake.errors import ExportError
from lake.folding import as_of, current, engines
from lake.states.fold_tasks import FoldTask
from lake.states.folders import version_name
from lake.states.ledger import StateLedger
from lake.storage import identity
from lake.storage.folder import DiskFolder
from lake.storage.identity import Lake
from pipeline.exports import ledger as export_ledger
from pipeline.server import schedule
from tests.spark import both_engines
from tests.spark.conftest import EVENTS, Pipeline
from tests.spark.histories import KEYS, History, create
from tests.spark.plain_replay import EVENT, replay

pytestmark = pytest.mark.xdist_group("spark")  # for --dist loadgroup: one JVM, each log made once
Pipelines = Callable[..., AbstractContextManager[Pipeline]]


@contextmanager
def opened(pipeline: Pipeline) -> Iterator[Lake]:
    """The lake, with its lock."""
    with ledger.open_ledger(pipeline.dsn) as book:
        yield exporter.open_lake(book, DiskFolder(pipeline.folder), EVENTS)


def fold(
    pipeline: Pipeline, spark: SparkSession, compared: int = 0, latest_age: float = 0.0
) -> dict[str, current.PublishedState]:
    """What `export.py` does after its ranges; `compared`: how many tables are folded by both engines first."""
    pipeline.export()
    made: list[current.PublishedState] = []
    with opened(pipeline) as lake:
        current.recover(lake)
        pending = current.find_outdated(lake, latest_age)
        if compared:
            assert both_engines.assert_equal(spark, lake, pending) == compared
        current.fold_all(spark, lake, pending, made.append)
    return {published.dataset: published for published in made}


def folded_upto(pipeline: Pipeline) -> int:
    with psycopg.connect(pipeline.dsn) as connection:
        row = connection.execute("select folded_upto from pipeline.lakes").fetchone()
    assert row is not None
    return int(row[0])


def past_state(pipeline: Pipeline, spark: SparkSession, table: str, seq: int, output: Path) -> None:
    with ledger.open_ledger(pipeline.dsn) as book:
        lake = identity.open_for_reading(book, DiskFolder(pipeline.folder))
        as_of.write_state(spark, lake, as_of.check_request(lake, table, seq, output))


def columns_in(folder: Path) -> list[str]:
    """But for `exact`, whose entries `rows_in` puts in their columns."""
    names = ds.dataset(sorted(folder.glob("*.parquet"))).schema.names
    return [name for name in names if name != "exact"]


def rows_in(folder: Path) -> dict[str, Any]:
    """Rows by record_pk; a value that its type cannot carry as its text."""
    rows = ds.dataset(sorted(folder.glob("*.parquet"))).to_table().to_pylist()
    for row in rows:
        row.update(json.loads(row.pop("exact") or "{}"))
    assert len({row["record_pk"] for row in rows}) == len(rows)
    return {row["record_pk"]: row for row in rows}


def latest(pipeline: Pipeline, table: str) -> Path:
    return pipeline.folder / f"current/public.{table}/latest"


def expected(pipeline: Pipeline, table: str, columns: Sequence[str], upto: int = 2**62) -> dict[str, Any]:
    """By going through the log, its values as Parquet has them; null in columns that came later."""
    rows = replay(pipeline.events("public", table, EVENT), KEYS[table], upto)
    empty = dict.fromkeys(columns)
    return {key: empty | {name: as_parquet(name, value) for name, value in row.items()} for key, row in rows.items()}


def assert_is_replay(folder: Path, pipeline: Pipeline, table: str, upto: int = 2**62) -> None:
    found, wanted = rows_in(folder), expected(pipeline, table, columns_in(folder), upto)
    assert found.keys() == wanted.keys()
    for key, row in found.items():
        assert row == wanted[key], key


def as_parquet(name: str, value: Any) -> Any:
    if name == "amount" and value not in (None, "NaN"):
        return Decimal(value)
    if name == "day" and value not in (None, "infinity"):
        return date.fromisoformat(value)
    if name == "grid" and value is not None and not value.startswith("{{"):
        return [None if each == "NULL" else int(each) for each in value.strip("{}").split(",")]
    return value


def inodes(folder: Path) -> Mapping[str, int]:
    return {path.name: path.stat().st_ino for path in folder.glob("*.parquet")}


def leave_values_out(pipeline: Pipeline) -> None:
    """Without the index in which the shuffler looks the last event of a row up it fills in no value, and names it."""
    [name] = pipeline.log.execute(
        f"select indexrelid::regclass::text from pg_index where indrelid = '{EVENTS}'::regclass"
        " and pg_get_indexdef(indexrelid) like '%(source_database_id, source_table_oid, record_pk, seq)'"
    ).fetchone() or [None]
    pipeline.log.execute(f"drop index {name}".encode())


@pytest.fixture(scope="module")
def exported(pipelines: Pipelines, spark: SparkSession) -> Iterator[Pipeline]:
    """Random histories in three exports, each folded and compared: at first, then with a wider column, a new one, and
    a recreated table, then without anything of that kind. Their log lacks the values that updates leave alone, and has
    every other new row, and some that are changed, as a snapshot reads them.
    """
    with pipelines() as pipeline, pytest.MonkeyPatch.context() as patch:
        patch.setattr("lake.states.plan.ROWS_PER_BUCKET", 4)
        leave_values_out(pipeline)
        single, pair = (History(table, seed) for seed, table in enumerate(("single", "pair")))
        pipeline.source.execute("create table public.keyless (n int)")
        for table in KEYS:
            for statement in create(table):
                pipeline.source.execute(statement.encode())
        pipeline.replicate("insert into public.keyless values (1)", *single.statements(120), *pair.statements(120))
        fold_and_compare(pipeline, spark)
        pipeline.replicate("alter table public.single alter n type bigint, add more text")
        pipeline.replicate(*single.statements(120), *pair.statements(60))
        make_anew(pipeline, "pair")
        pair.empty()
        pipeline.replicate(*pair.statements(60))
        fold_and_compare(pipeline, spark, 2)
        pipeline.replicate(*single.statements(60))
        fold_and_compare(pipeline, spark)
        yield pipeline


AS_READ = """
    update sequin_events set action = 'read', commit_idx = commit_idx + 1
    where action = 'insert' and seq % 2 = 0
        or action = 'update' and changes is null and unchanged_columns is null and seq % 3 = 0
"""


def fold_and_compare(pipeline: Pipeline, spark: SparkSession, compared: int = 0) -> None:
    pipeline.log.execute(AS_READ)
    fold(pipeline, spark, compared)
    for table in KEYS:
        assert_is_replay(latest(pipeline, table), pipeline, table)


def make_anew(pipeline: Pipeline, table: str) -> None:
    pipeline.source.execute(f"drop table public.{table}".encode())
    for statement in create(table):
        pipeline.source.execute(statement.encode())
    schedule.publish_new_tables(pipeline.config)


@pytest.mark.parametrize(
    ("table", "seqs"), [("pair", 1), *(pytest.param(table, 3, marks=pytest.mark.long) for table in ("single", "pair"))]
)
def test_the_state_at_random_seqs_equals_a_replay_of_the_log(
    table: str, seqs: int, exported: Pipeline, spark: SparkSession, tmp_path: Path
) -> None:
    events = exported.events("public", table, EVENT)
    for number, event in enumerate(random.Random(7).sample(events, seqs)):
        output = tmp_path / str(number)
        past_state(exported, spark, f"public.{table}", event["seq"], output)
        assert_is_replay(output, exported, table, event["seq"])


def test_the_log_holds_what_makes_a_fold_hard(exported: Pipeline) -> None:
    for table in KEYS:
        events = exported.events("public", table)
        assert any(event["unchanged_columns"] and event["changes"] for event in events)
        assert {event["action"] for event in events} == {"insert", "update", "delete", "truncate", "read"}
        were_read = {event["record_pk"] for event in events if event["action"] == "read"}
        assert any(event["record_pk"] in were_read and event["unchanged_columns"] for event in events)
    assert len({event["source_table_oid"] for event in exported.events("public", "pair")}) == 2


def test_a_bucket_whose_keys_did_not_change_keeps_its_file(exported: Pipeline, spark: SparkSession) -> None:
    folder = latest(exported, "single")
    exported.replicate("insert into public.single (id, n) values (1000000, 1)")
    before = inodes(folder)
    made = fold(exported, spark)["public.single"]
    after = inodes(folder)
    assert made.rewritten == 1 and made.buckets > 1
    assert len(after.items() - before.items()) == 1
    assert len(before.items() - after.items()) <= 1
    assert_is_replay(folder, exported, "single")


def test_a_table_that_is_too_large_for_a_task_is_folded_by_spark(
    exported: Pipeline, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lake.states.fold_tasks.MOST_BYTES", 1)
    exported.replicate("insert into public.single (id, n) values (1000001, 1)")
    folded: list[FoldTask] = []
    fold_large = engines.fold_large

    def noted(spark: SparkSession, task: FoldTask) -> engines.Outcome:
        folded.append(task)
        return fold_large(spark, task)

    monkeypatch.setattr(engines, "fold_large", noted)
    assert fold(exported, spark)["public.single"].rewritten == 1
    assert len(folded) == 1
    assert_is_replay(latest(exported, "single"), exported, "single")


def test_a_large_state_waits_for_more_changes_and_nothing_is_lost_by_that(
    exported: Pipeline, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lake.folding.waiting.SMALL", 0)
    monkeypatch.setattr("lake.folding.waiting.PART", 1)
    whole = as_of_seqs(exported)["public.single"]
    change, other = "insert into public.single (id, n) values (%d, 1)", "update public.pair set n = 5"
    exported.replicate(change % 2000000, other)
    assert list(fold(exported, spark, latest_age=HOUR)) == ["public.pair"]
    exported.replicate(change % 2000001)
    assert fold(exported, spark, latest_age=HOUR) == {}
    head = folded_upto(exported)
    assert as_of_seqs(exported) == {"public.single": whole, "public.pair": head}
    assert_is_replay(latest(exported, "single"), exported, "single", whole)
    past_state(exported, spark, "public.single", head, tmp_path)
    assert_is_replay(tmp_path, exported, "single")
    assert not has_work(exported)

    exported.log.execute("update pipeline.export_tables set waits_since = waits_since - interval '1 hour'")
    assert has_work(exported)
    assert list(fold(exported, spark, latest_age=HOUR)) == ["public.single"]
    assert_is_replay(latest(exported, "single"), exported, "single")
    assert as_of_seqs(exported) == dict.fromkeys(("public.single", "public.pair"), head)
    assert not has_work(exported)


def test_a_waiting_large_state_follows_at_once_if_its_table_is_altered(
    exported: Pipeline, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lake.folding.waiting.SMALL", 0)
    monkeypatch.setattr("lake.folding.waiting.PART", 1)
    exported.replicate("insert into public.single (id, n) values (2000002, 1)")
    assert fold(exported, spark, latest_age=HOUR) == {}
    exported.replicate(
        "alter table public.single add later text", "insert into public.single (id, later) values (2000003, 'x')"
    )
    assert list(fold(exported, spark, latest_age=HOUR)) == ["public.single"]
    assert_is_replay(latest(exported, "single"), exported, "single")
    assert has_work(exported, age="1s") is False


HOUR = 3600.0


def has_work(pipeline: Pipeline, age: str = "1h") -> bool:
    """Whether the server would start a run."""
    config = pipeline.config.model_copy(update={"export_dir": pipeline.folder, "export_latest_age": age})
    with psycopg.connect(pipeline.dsn) as connection:
        return export_ledger.window(connection, config).anything_new


def as_of_seqs(pipeline: Pipeline) -> dict[str, int]:
    """Up to which seq each current state lacks nothing, as the manifest says."""
    states = json.loads((pipeline.folder / "manifest.json").read_bytes())["current"]
    return {name: states[name]["as_of"] for name in ("public.single", "public.pair")}


def test_a_table_that_cannot_be_folded_keeps_no_other_back(exported: Pipeline, spark: SparkSession) -> None:
    exported.replicate(*(f"update public.{table} set n = 0" for table in KEYS))
    exported.replicate("insert into public.single (id, n) values (1000002, 1)")
    exported.export()
    lost = max((exported.folder / "files/changes/public.pair").rglob("*.parquet"), key=lambda file: file.name)
    lost.rename(lost.with_suffix(".away"))
    with pytest.raises(ExportError, match=r"^the state of public\.pair: FileNotFoundError: .*\.parquet"):
        fold(exported, spark)
    assert_is_replay(latest(exported, "single"), exported, "single")
    lost.with_suffix(".away").rename(lost)
    fold(exported, spark)
    assert_is_replay(latest(exported, "pair"), exported, "pair")


def test_a_fold_that_a_crash_left_out_is_caught_up_and_no_truncate_waits(
    exported: Pipeline, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lake.folding.waiting.SMALL", 0)
    monkeypatch.setattr("lake.folding.waiting.PART", 1)
    exported.replicate("truncate public.pair")
    exported.export()
    with opened(exported) as lake:
        assert [pending.dataset for pending in current.find_outdated(lake, HOUR)] == ["public.pair"]
        assert folded_upto(exported) < lake.ledger.exported_upto(lake.id)
    assert fold(exported, spark)["public.pair"].rows == 0
    with opened(exported) as lake:
        assert folded_upto(exported) == lake.ledger.exported_upto(lake.id)
    folder = exported.folder / "current/public.pair"
    assert ds.dataset(sorted((folder / "latest").glob("*.parquet"))).to_table().num_rows == 0
    assert [found.name for found in folder.iterdir()] == ["latest"]
    assert versions_of(exported, "public.pair") == kept_versions(exported, "public.pair")
    with opened(exported) as lake:
        assert current.find_outdated(lake) == []


@pytest.mark.long
def test_a_killed_publisher_leaves_latest_whole(exported: Pipeline) -> None:
    """At each of its steps in turn, until it lives through all of them."""
    folder = exported.folder / "current/public.single"
    wanted = rows_in(folder / "latest")
    with opened(exported) as lake:
        newest = lake.ledger.exported_upto(lake.id)
    for step in range(1, 20):
        ended = publish_in_vain(exported, newest + step, step)
        assert rows_in(folder / "latest") == wanted, step
        with opened(exported) as lake:
            current.recover(lake)
        kept = versions_of(exported, "public.single")
        assert rows_in(folder / "latest") == wanted, step
        assert max(kept) == max(f"v{found.stem[-20:]}" for found in (folder / "latest").iterdir())
        assert kept_versions(exported, "public.single") == kept
        if ended == 0:
            break
    assert step > 5


def versions_of(pipeline: Pipeline, dataset: str) -> set[str]:
    """The folders of the versions that the ledger has."""
    with opened(pipeline) as lake:
        return {version_name(seq) for seq in StateLedger(lake.ledger, lake.id).seqs(dataset)}


def kept_versions(pipeline: Pipeline, dataset: str) -> set[str]:
    """The folders of versions that are there."""
    return {found.name for found in (pipeline.folder / "files/current" / dataset).iterdir()}


def publish_in_vain(pipeline: Pipeline, seq: int, step: int) -> int:
    command = [sys.executable, Path(__file__).with_name("state_victim.py"), pipeline.dsn, pipeline.folder, seq, step]
    ended = subprocess.run(list(map(str, command)), env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert ended.returncode in (0, -signal.SIGKILL)
    return ended.returncode


@pytest.mark.parametrize(
    ("table", "beyond", "reason"),
    [
        ("public.none", 0, "table public.none is not in the lake; name one that has been exported"),
        ("single", 0, "table single has no schema; write schema.table"),
        ("public.single", 1, "which holds 1 to "),
        ("public.keyless", 0, "has no key as of seq "),
        ("public.single", 0, "holds somebody; name a folder that is new or empty"),
    ],
)
def test_what_cannot_be_had_is_said_in_one_line(
    table: str, beyond: int, reason: str, exported: Pipeline, tmp_path: Path
) -> None:
    (tmp_path / "somebody").touch()
    with ledger.open_ledger(exported.dsn) as book, pytest.raises(ExportError) as raised:
        lake = identity.open_for_reading(book, DiskFolder(exported.folder))
        as_of.check_request(lake, table, book.exported_upto(lake.id) + beyond, tmp_path)
    assert reason in str(raised.value) and "\n" not in str(raised.value)


RETYPED = """
    alter table public.retyped alter a type int using 7, alter b type text using 'b', alter c type text[] using null,
        alter d type date using null, alter e type int[] using null
"""


def test_old_rows_take_the_new_types_or_say_what_they_were(exported: Pipeline, spark: SparkSession) -> None:
    exported.source.execute(
        "create table public.retyped (id int primary key, a text, b bytea, c int[], d timestamptz, e text, bucket text)"
    )
    schedule.publish_new_tables(exported.config)
    rows = "(1, '34', 'hi', '{1,null}', '2024-02-29 23:59+00', '{1}', 'x'), (2, 'x', null, null, 'infinity', null, 'y')"
    exported.replicate(f"insert into public.retyped values {rows}")
    fold(exported, spark)
    exported.replicate(RETYPED, "insert into public.retyped (id, a) values (3, 5)")
    fold(exported, spark)
    found = rows_in(latest(exported, "retyped"))
    values = {key: [row[column] for column in "abcde"] for key, row in found.items()}
    assert values == {
        "1": [34, "\\x6869", ["1", None], date(2024, 2, 29), "{1}"],
        "2": ["x", None, None, "infinity", None],
        "3": [5, None, None, None, None],
    }
    assert [row["bucket"] for row in found.values()] == ["x", "y", None]


COPY_OF = """
    insert into sequin_events select (jsonb_populate_record(e, jsonb_build_object(
        'seq', nextval('sequin_events_seq_seq'), 'metadata', %s::jsonb, 'record', %s::jsonb))).*
    from sequin_events e where e.record_pk = %s and e.metadata ? 'parked'
"""


def test_a_dead_letter_neither_blanks_a_row_nor_sets_it_back(pipelines: Pipelines, spark: SparkSession) -> None:
    with pipelines() as pipeline:
        pipeline.source.execute("create table public.marked (id int primary key, v text)")
        check_marks(pipeline, spark)


def check_marks(exported: Pipeline, spark: SparkSession) -> None:
    exported.replicate("insert into public.marked values (1, 'a'), (2, 'b')")
    fold(exported, spark)
    exported.replicate(
        "update public.marked set v = 'c' where id = 1; insert into public.marked values (3, 'c'), (4, 'c')"
    )
    exported.log.execute("update sequin_events set action = 'read' where record_pk = '4'")
    exported.log.execute(
        "update sequin_events set metadata = '{\"parked\": 1}', record = '{}'"
        " where source_table_name = 'marked' and record ->> 'v' = 'c'"
    )
    fold(exported, spark, 1)
    assert {key: row["v"] for key, row in rows_in(latest(exported, "marked")).items()} == {"1": "a", "2": "b"}
    exported.log.execute(COPY_OF, ['{"retried": 1, "outdated": true}', '{"id": 1, "v": "c"}', "1"])
    for key in ("3", "4"):
        exported.log.execute(COPY_OF, ['{"retried": 2}', json.dumps({"id": int(key), "v": "c"}), key])
    exported.replicate()
    fold(exported, spark)
    values = {key: row["v"] for key, row in rows_in(latest(exported, "marked")).items()}
    assert values == {"1": "a", "2": "b", "3": "c", "4": "c"}
    marks = exported.changes("public.marked").column("event_metadata").to_pylist()
    assert marks[2:] == ['{"parked": 1}'] * 3 + ['{"retried": 1, "outdated": true}'] + ['{"retried": 2}'] * 2
