"""The stream of `sequin_events`: batches of whole transactions, a consumer that retention waits for, refusals."""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from pipeline.log.table import DEFAULT
from pyspark_sequin_events import DefaultSource, catalog
from pyspark_sequin_events.stream import StreamReader
from tests.fixtures import small_log
from tests.fixtures.postgres import Cluster
from tests.fixtures.routed_log import AUDIT, route
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.xdist_group("spark")
EVERYTHING = ReadAllAvailable()


class Log:
    """Events without a source; `write(3, 1)` adds a transaction of three events and one of one."""

    def __init__(self, dsn: str, connection: psycopg.Connection) -> None:
        self.dsn, self.connection = dsn, connection
        self._lsns = itertools.count(1000, 10)
        small_log.add_table(connection)
        connection.execute("create table log_part partition of sequin_events for values from (1) to (100000000)")

    def write(self, *transactions: int, gap: int = 0) -> list[int]:
        """Returns the seq at which each ends."""
        return [self._transaction(events, gap) for events in transactions]

    def _transaction(self, events: int, gap: int) -> int:
        found = self.connection.execute(
            "insert into sequin_events (seq, source_database_id, commit_lsn, commit_idx, xid, source_table_oid,"
            " source_table_schema, source_table_name, record_pk, record, action, committed_at)"
            " select %(after)s + n, %(source)s, %(lsn)s, n, 1, 16384, 'public', 'orders', (%(after)s + n)::text,"
            " jsonb_build_object('id', %(after)s + n, 'customer', 'c', 'state', 1), 'insert', now()"
            " from generate_series(1, %(events)s) n returning seq",
            {"after": self.head + gap, "source": small_log.SOURCE, "lsn": next(self._lsns), "events": events},
        ).fetchall()
        return max(int(seq) for (seq,) in found)

    @property
    def head(self) -> int:
        [(seq,)] = self.connection.execute("select coalesce(max(seq), 0) from sequin_events").fetchall()
        return int(seq)

    def drop_below(self, seq: int) -> None:
        self.connection.execute("delete from sequin_events where seq < %s", [seq])
        self.connection.execute(
            "insert into pipeline.retention (events_table, dropped_below) values ('public.sequin_events', %s)"
            " on conflict (events_table) do update set dropped_below = excluded.dropped_below",
            [seq],
        )

    def change_columns(self, *columns: tuple[str, int, str]) -> None:
        """From the next transaction on the table has these columns: name, type's oid and name."""
        lsn = next(self._lsns)
        described = [
            {"name": name, "type_oid": oid, "type_modifier": -1, "type_name": text, "base_type_oid": oid}
            for name, oid, text in columns
        ]
        self.connection.execute(
            "insert into pipeline.relations (source_id, epoch, relation_oid, relation_schema, relation_name, table_oid,"
            " table_schema, table_name, replica_identity, columns, key_columns, from_lsn)"
            " values (%s, 0, 16384, 'public', 'orders', 16384, 'public', 'orders', 'd', %s, '{id}', %s)",
            [small_log.SOURCE, json.dumps(described), lsn],
        )

    def consumer(self, name: str = "spark", **values: object) -> None:
        given = "".join(f", {column} => %({column})s" for column in values)
        self.connection.execute(
            f"select pipeline.create_consumer(%(name)s, kind => 'cursor', start => 'beginning'{given})",
            {"name": name, **values},
        )

    def position(self, name: str = "spark") -> tuple[int, str | None]:
        [row] = self.connection.execute("select position, reader from pipeline.consumers where name = %s", [name])
        return row


@pytest.fixture
def stream_log(cluster: Cluster) -> Iterator[Log]:
    with cluster.database("events", cluster.template) as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        yield Log(dsn, connection)


@pytest.fixture
def readers(stream_log: Log) -> Iterator[Callable[..., StreamReader]]:
    """`readers(consumer="spark")`: as Spark makes one on the driver."""
    made: list[StreamReader] = []

    def make(**options: object) -> StreamReader:
        source = DefaultSource({"dsn": stream_log.dsn, **{name: str(value) for name, value in options.items()}})
        made.append(cast(StreamReader, source.streamReader(source.schema())))
        return made[-1]

    yield make
    for reader in made:
        reader.stop()


def seqs(reader: StreamReader, after: int, upto: int) -> list[int]:
    """What the partitions of a batch hold."""
    parts = reader.partitions({"seq": after}, {"seq": upto})
    return [seq for part in parts for batch in reader.read(part) for seq in batch.column("seq").to_pylist()]


def ends_by_definition(ends: list[int], counts: list[int], after: int, most: int) -> int:
    """The last end with no more than `most` events before it; else the first."""
    later = [(end, count) for end, count in zip(ends, counts, strict=True) if end > after]
    totals = list(itertools.accumulate(count for _, count in later))
    fitting = [end for (end, _), total in zip(later, totals, strict=True) if total <= most]
    return max([later[0][0], *fitting])


@pytest.mark.parametrize("gap", [0, 700])
def test_a_batch_is_whole_transactions(stream_log: Log, readers: Callable[..., StreamReader], gap: int) -> None:
    counts = [random.choice((1, 1, 2, 5, 40)) for _ in range(30)]
    ends = stream_log.write(*counts, gap=gap)
    reader = readers()
    for after in [0, *random.sample(ends[:-1], 5)]:
        for most in (1, 3, 39, 40, 41, 10_000):
            expected = ends_by_definition(ends, counts, after, most)
            assert reader.latestOffset({"seq": after}, ReadMaxRows(most)) == {"seq": expected}, (counts, after, most)
        assert reader.latestOffset({"seq": after}, EVERYTHING) == {"seq": ends[-1]}
    assert reader.latestOffset({"seq": ends[-1]}, EVERYTHING) == {"seq": ends[-1]}
    assert reader.reportLatestOffset() == {"seq": ends[-1]}


def test_events_of_a_legacy_table_are_transactions_by_themselves(
    stream_log: Log, readers: Callable[..., StreamReader]
) -> None:
    stream_log.write(6)
    stream_log.connection.execute("update sequin_events set commit_lsn = null, commit_idx = null")
    assert readers().latestOffset({"seq": 0}, ReadMaxRows(4)) == {"seq": 4}


def test_what_old_partitions_hold_is_not_looked_at(
    stream_log: Log, readers: Callable[..., StreamReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream_log.connection.execute("drop table log_part")
    for number in range(20):
        bounds = f"from ({number * 100 + 1}) to ({number * 100 + 101})"
        stream_log.connection.execute(f"create table part_{number} partition of sequin_events for values {bounds}")
    stream_log.write(*[50] * 40)
    asked: list[str] = []
    plain = catalog.rows

    def rows(connection: Any, query: str, parameters: tuple[Any, ...] = ()) -> list[dict[str, Any]]:
        asked.append(query)
        return plain(connection, query, parameters)

    reader = readers()
    reader.latestOffset({"seq": 1930}, EVERYTHING)
    for module in ("catalog", "transactions", "coverage"):
        monkeypatch.setattr(f"pyspark_sequin_events.{module}.rows", rows)
    assert reader.latestOffset({"seq": 1930}, ReadMaxRows(30)) == {"seq": 1950}
    of_log = [query for query in asked if '"sequin_events"' in query]
    assert len(of_log) > 3
    for query in of_log:
        plan = "\n".join(line for (line,) in stream_log.connection.execute(f"explain {query}".encode()))
        assert "part_19" in plan, plan
        assert "part_18 " not in plan and "part_0 " not in plan and "Seq Scan" not in plan, plan


def test_where_a_query_begins(stream_log: Log, readers: Callable[..., StreamReader]) -> None:
    stream_log.write(5, 5, 5)
    stream_log.consumer()
    stream_log.connection.execute("select pipeline.advance('spark', 10)")
    stream_log.drop_below(4)
    begins = {
        (): 3,
        (("startingSeq", "earliest"),): 3,
        (("starting_seq", 7),): 6,
        (("startingSeq", "latest"),): 15,
        (("consumer", "spark"),): 10,
    }
    for options, seq in begins.items():
        reader = readers(**dict(options))
        assert reader.initialOffset() == {"seq": seq}
        reader.stop()
    with pytest.raises(
        ValueError, match=r"seq 2 to 3 of .* dropped by retention; let the query begin at startingSeq 4"
    ):
        readers(startingSeq=2).initialOffset()


def test_below_what_is_kept_is_an_error_that_says_what_is_missing(
    stream_log: Log, readers: Callable[..., StreamReader]
) -> None:
    stream_log.write(5, 5)
    stream_log.drop_below(8)
    gap = (
        r"^sequin_events: seq 6 to 7 of public\.sequin_events were dropped by retention; begin a new query, with"
        r" another checkpointLocation and startingSeq 8 or earliest, and compare its sink with the source$"
    )
    with pytest.raises(ValueError, match=gap):
        readers().latestOffset({"seq": 5}, EVERYTHING)
    with pytest.raises(ValueError, match=gap):
        readers().partitions({"seq": 5}, {"seq": 10})
    assert readers().latestOffset({"seq": 7}, EVERYTHING) == {"seq": 10}


def test_another_log_than_was_read_is_an_error(stream_log: Log, readers: Callable[..., StreamReader]) -> None:
    stream_log.write(5)
    with pytest.raises(
        ValueError, match=r"is at seq 9, but the newest of public\.sequin_events is 5: this is not the log"
    ):
        readers().latestOffset({"seq": 9}, EVERYTHING)
    stream_log.drop_below(10)
    assert readers().latestOffset({"seq": 9}, EVERYTHING) == {"seq": 9}


def test_a_checkpoint_of_a_log_that_was_lost_is_an_error(stream_log: Log, readers: Callable[..., StreamReader]) -> None:
    stream_log.write(5)
    stream_log.write(1, gap=100)
    stream_log.connection.execute("insert into pipeline.seq_jumps values ('public.sequin_events', 5, 106, 'test')")
    for inside in (6, 105):
        said = f"at seq {inside} of a log that was lost: .* another checkpointLocation and startingSeq 6"
        with pytest.raises(ValueError, match=said):
            readers().latestOffset({"seq": inside}, EVERYTHING)
    assert readers().latestOffset({"seq": 5}, EVERYTHING) == {"seq": 106}


def test_a_consumer_follows_the_query_and_nobody_else_reads_it(
    stream_log: Log, readers: Callable[..., StreamReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream_log.write(5, 5)
    stream_log.consumer()
    first = readers(consumer="spark")
    assert first.latestOffset(first.initialOffset(), EVERYTHING) == {"seq": 10}
    first.commit({"seq": 5})
    position, reader = stream_log.position()
    assert position == 5
    assert (reader or "").startswith("Spark on ")
    monkeypatch.setattr("pyspark_sequin_events.claim._LEAVING_SECONDS", 0.1)
    with pytest.raises(ValueError, match=r"^sequin_events: consumer spark is read by Spark on .*; end that first$"):
        readers(consumer="spark").initialOffset()
    first.stop()
    assert stream_log.position() == (5, None)
    assert readers(consumer="spark").initialOffset() == {"seq": 5}


def test_a_consumer_of_another_events_table_is_read_by_a_query_of_that_one(
    stream_log: Log, readers: Callable[..., StreamReader]
) -> None:
    route(stream_log.connection)
    stream_log.consumer(events_table=str(AUDIT))
    with pytest.raises(ValueError, match=f"consumer spark is of events table {AUDIT}, and the query reads {DEFAULT}"):
        readers(consumer="spark").initialOffset()
    reader = readers(consumer="spark", events_table=AUDIT)
    assert reader.latestOffset(reader.initialOffset(), EVERYTHING) == {"seq": 30}
    reader.commit({"seq": 30})
    assert stream_log.position()[0] == 30


def test_a_paused_consumer_has_nothing_new_and_a_lost_one_ends_the_query(
    stream_log: Log, readers: Callable[..., StreamReader]
) -> None:
    stream_log.write(5)
    stream_log.consumer()
    reader = readers(consumer="spark")
    stream_log.connection.execute("select pipeline.pause_consumer('spark')")
    assert reader.latestOffset({"seq": 0}, EVERYTHING) == {"seq": 0}
    stream_log.connection.execute("select pipeline.resume_consumer('spark')")
    assert reader.latestOffset({"seq": 0}, EVERYTHING) == {"seq": 5}
    stream_log.connection.execute("update pipeline.consumers set reader_session = 'another:1'")
    with pytest.raises(ValueError, match="consumer spark is lost: it was reset or deleted, or taken by another reader"):
        reader.latestOffset({"seq": 0}, EVERYTHING)
    with pytest.raises(ValueError, match="is not read by this session"):
        reader.commit({"seq": 5})


def test_a_consumer_whose_reader_is_alive_is_not_taken_for_frozen(
    stream_log: Log, readers: Callable[..., StreamReader], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark_sequin_events.claim._BEAT_SECONDS", 0.05)
    stream_log.consumer()
    readers(consumer="spark").initialOffset()
    held = (
        "select a.state_change from pg_stat_activity a join pipeline.consumers c"
        " on exists (select from pipeline.advisory_locks l where l.pid = a.pid and l.key1 = 1346981969"
        " and l.key2 = hashtext(c.reader_session))"
    )
    [(before,)] = stream_log.connection.execute(held).fetchall()
    eventually(lambda: stream_log.connection.execute(held).fetchall()[0][0] > before)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"consumer": "none"}, "there is no consumer none; create it: `pipeline consumers create none --kind cursor`"),
        ({"consumer": "queue"}, "consumer queue is of kind records; a stream needs a cursor"),
        ({"consumer": "some"}, "consumer some has filters; name a consumer without filters"),
        (
            {"consumer": "spark", "eventsTable": "public.other"},
            "consumer spark is of events table public.sequin_events, and the query reads public.other",
        ),
        ({"startingSeq": "first"}, "option startingSeq is 'first', expected a seq, earliest or latest"),
        ({"maxRowsPerBatch": 0}, "option maxRowsPerBatch must be at least 1"),
        ({"after": 3}, "option after is for batches; a stream has startingSeq"),
        ({"maxRows": 3}, "there is no option maxRows; there are dsn, "),
        ({"table": "public.orders", "tables": "a.b"}, "option tables cannot be combined with option table"),
        ({"keys": "1,2"}, "option keys is '1,2', expected a JSON array of texts"),
        ({"columns": "seq, pk"}, "there is no column 'pk'; there are seq, "),
        ({"splitKeyChanges": "yes"}, "option splitKeyChanges is 'yes', expected true or false"),
        ({"dsn": "postgresql://u:p@h/db"}, "option dsn holds a password, which would be in plans and go over the"),
        ({"dsn": "host=h password='p w' dbname=x"}, "option dsn holds a password"),
    ],
)
def test_a_wrong_option_is_named(
    stream_log: Log, readers: Callable[..., StreamReader], options: dict[str, object], reason: str
) -> None:
    stream_log.consumer("some", tables=["public.orders"])
    stream_log.consumer()
    stream_log.connection.execute("select pipeline.create_consumer('queue')")
    with pytest.raises(ValueError, match=r"^sequin_events: ") as caught:
        readers(**options).initialOffset()
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_older_spark_is_told_so(readers: Callable[..., StreamReader], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark_sequin_events.stream", None)  # as where it has no limits of reads
    with pytest.raises(ValueError, match=r"^sequin_events: a stream needs PySpark 4\.2 or newer, not \S+; upgrade it$"):
        readers()


def test_rows_and_columns_are_chosen_in_the_database(stream_log: Log, readers: Callable[..., StreamReader]) -> None:
    small_log.add_table(stream_log.connection, "notes", 16385)
    stream_log.write(5)
    stream_log.connection.execute(
        "update sequin_events set source_table_name = 'notes', source_table_oid = 16385 where seq > 3"
    )
    stream_log.connection.execute("update sequin_events set action = 'delete' where seq in (2, 5)")
    assert seqs(readers(tables="public.o*"), 0, 5) == [1, 2, 3]
    assert seqs(readers(tables="x.y, public.notes", actions="insert,update"), 0, 5) == [4]
    assert seqs(readers(keys='["1", "5", "a\'b"]'), 0, 5) == [1, 5]
    assert seqs(readers(table="public.notes", actions='["delete"]'), 0, 5) == [5]
    [batch] = [
        batch
        for reader in [readers(table="public.orders", columns="customer, action")]
        for part in reader.partitions({"seq": 0}, {"seq": 5})
        for batch in reader.read(part)
    ]
    assert batch.to_pylist()[:2] == [{"customer": "c", "action": "insert"}, {"customer": "c", "action": "delete"}]


ORDERS = (("id", 20, "bigint"), ("customer", 25, "text"), ("state", 23, "integer"))


def test_columns_that_are_added_end_a_batch_and_then_the_query(
    stream_log: Log, readers: Callable[..., StreamReader]
) -> None:
    [before] = stream_log.write(4)
    reader = readers(table="public.orders")
    stream_log.change_columns(*ORDERS, ("note", 25, "text"))
    [_, last] = stream_log.write(3, 2)
    assert reader.latestOffset({"seq": 0}, EVERYTHING) == {"seq": before}
    wider = r"table public\.orders has more or wider columns at seq 5 than at the query's start; start it again"
    with pytest.raises(ValueError, match=wider):
        reader.latestOffset({"seq": before}, EVERYTHING)
    with pytest.raises(ValueError, match=wider):
        reader.partitions({"seq": 0}, {"seq": last})
    again = readers(table="public.orders")
    assert again.latestOffset({"seq": 0}, EVERYTHING) == {"seq": last}
    assert seqs(again, 0, last) == list(range(1, last + 1))
    stream_log.change_columns(*ORDERS[:2])
    [last] = stream_log.write(1)
    assert again.latestOffset({"seq": before}, EVERYTHING) == {"seq": last}


def test_no_event_of_another_schema_version_is_passed_over(
    stream_log: Log, readers: Callable[..., StreamReader]
) -> None:
    [before] = stream_log.write(4)
    stream_log.change_columns(("id", 20, "bigint"), ("state", 25, "text"))
    [last] = stream_log.write(3)
    other = r"seq {} of table public\.orders has schema version {}, and this query reads version {}; start it again"
    with pytest.raises(ValueError, match=other.format(1, 1, 2)):
        readers(table="public.orders").latestOffset({"seq": 0}, EVERYTHING)
    first = readers(table="public.orders", version=1)
    assert first.latestOffset({"seq": 0}, EVERYTHING) == {"seq": before}
    with pytest.raises(ValueError, match=other.format(5, 2, 1)):
        first.latestOffset({"seq": before}, EVERYTHING)
    assert readers(table="public.orders").latestOffset({"seq": before}, EVERYTHING) == {"seq": last}


def test_a_query_reads_each_event_once_and_goes_on_at_its_checkpoint(
    spark: SparkSession, stream_log: Log, tmp_path: Path
) -> None:
    stream_log.consumer()
    ends = stream_log.write(3, 4, 30, 2)
    batches: list[list[int]] = []

    def keep(batch: DataFrame, _: int) -> None:
        batches.append([row.seq for row in batch.select("seq").collect()])

    def query(**options: str) -> None:
        stream = spark.readStream.format("sequin_events").option("dsn", stream_log.dsn).options(**options).load()
        running = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path))
        running.trigger(availableNow=True).start().awaitTermination()

    query(consumer="spark", maxRowsPerBatch="8", columns="seq")
    assert [max(batch) for batch in batches] == [ends[1], ends[2], ends[3]]
    eventually(lambda: stream_log.position() == (ends[2], None))  # released, one batch behind
    [last] = stream_log.write(3)
    query(consumer="spark")
    assert sorted(itertools.chain(*batches)) == list(range(1, last + 1))
    assert stream_log.position()[0] == ends[3]
    offsets = sorted((tmp_path / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    assert [json.loads(path.read_text().splitlines()[-1]) for path in offsets] == [
        {"seq": seq} for seq in (ends[1], ends[2], ends[3], last)
    ]
    assert [
        path for path in tmp_path.rglob("*") if path.is_file() and "dbname" in path.read_text(errors="ignore")
    ] == []
