"""Many changes at once: passed on as COPY text, and read ahead of what is written."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from pipeline.errors import NotFollowableError, RowDiffersError
from pipeline.followers.applying import read_ahead
from pipeline.followers.applying.followed_tables import TableToFollow
from pipeline.followers.applying.outcomes import OutcomeReader
from pipeline.followers.applying.reading import LogReader, PassSizes
from pipeline.followers.applying.table_versions import ReachedVersion
from pipeline.postgres import connections
from pipeline.postgres.connections import Connection
from pipeline.server.schedule import publish_new_tables
from tests.fixtures.following import Follower, drain, follower, oid
from tests.fixtures.postgres import Cluster
from tests.fixtures.stage import Stage, databases

FEW = PassSizes(events=20, long=50, relayed=10, added=10)
"""So that some hundred events are many."""
TEXTS = ["a\tb", "line\nline\r\n", "\\", "\\N", "\\.", "%s %% %(a)s", "'\"{},", "", "é\u2028😀", "\x01\x7f", "null"]


@pytest.fixture(scope="module")
def stage(cluster: Cluster) -> Iterator[Stage]:
    with databases(cluster, cluster, snapshot="never") as config, Stage(config) as stage:
        stage.start()
        yield stage


def made(stage: Stage, *statements: str) -> int:
    """Tables that are captured from their first row on; the seq before it."""
    stage.run(*statements)
    publish_new_tables(stage.config)
    return stage.arrive()


def become_equal(stage: Stage, there: Follower, table: str) -> None:
    query = sql.SQL("select t::text from public.{} t order by 1").format(sql.Identifier(table))
    assert there.look.execute(query).fetchall() == stage.source.execute(query).fetchall()


def seq_of(stage: Stage, table: str, record_pk: int) -> int:
    """Of its newest event."""
    query = "select max(seq) as seq from sequin_events where source_table_name = %s and record_pk = %s"
    return int(stage.look(query, table, str(record_pk))[0]["seq"])


def connecting(stage: Stage) -> Connection:
    return connections.connect(stage.config.database, "pipeline database")


def test_names_and_texts_that_mean_something_to_copy(stage: Stage, cluster: Cluster):
    table = 'create table "odd\t%s" (id int primary key, "100% \\N" text, "a\nb" text[])'
    seq = made(stage, table)
    name, column = sql.Identifier("odd\t%s"), sql.Identifier("100% \\N")
    values = [
        sql.SQL("({}, {}, array[{}, null])").format(number, text, text) for number, text in enumerate([*TEXTS, None])
    ]
    stage.run(sql.SQL("insert into {} values {}").format(name, sql.SQL(", ").join(values)))
    stage.arrive()
    with follower(stage, cluster, table, seq=seq) as there:
        applier = there.applier(["odd\t%s"], sizes=FEW)
        drain(applier)
        become_equal(stage, there, "odd\t%s")
        stage.run(sql.SQL("update {} set {} = {} || coalesce({}, '\\N')").format(name, column, "\t", column))
        stage.arrive()
        drain(applier)
        become_equal(stage, there, "odd\t%s")


def test_a_table_of_many_columns(stage: Stage, cluster: Cluster):
    columns = ", ".join(f"c{n} {('text', 'int', 'json', 'numeric')[n % 4]}" for n in range(160))
    table = f"create table broad (id int primary key, {columns})"
    seq = made(stage, table)
    row = ", ".join(f"(g + {n})::text::{('text', 'int', 'json', 'numeric')[n % 4]}" for n in range(160))
    stage.run(f"insert into broad select g, {row} from generate_series(1, 30) g")
    stage.arrive()
    with follower(stage, cluster, table, seq=seq) as there:
        applier = there.applier(["broad"], sizes=FEW)
        drain(applier)
        become_equal(stage, there, "broad")
        stage.transaction(
            "update broad set c0 = repeat('x', 5000), c158 = '[1,  2]' where id <= 20",
            "update broad set id = id + 100, c1 = null where id > 10",
        )
        stage.arrive()
        drain(applier)
        become_equal(stage, there, "broad")


def test_unique_values_that_many_rows_take_from_each_other(stage: Stage, cluster: Cluster):
    table = "create table pairs (id int primary key, code int unique, words text"
    seq = made(stage, f"{table})")
    stage.run("insert into pairs select g, g, 'words' from generate_series(1, 2000) g")
    stage.arrive()
    with follower(stage, cluster, f"{table}, own text default 'new')", seq=seq) as there:
        applier = there.applier(["pairs"], sizes=PassSizes(events=20, long=20000, relayed=10))
        drain(applier)
        there.run("update pairs set own = 'of ' || id")
        stage.transaction(
            "do $$ begin for k in 1..1000 loop"
            " update pairs set code = null where id = k;"
            " update pairs set code = k where id = 2001 - k;"
            " update pairs set code = 2001 - k where id = k; end loop; end $$",
            "update pairs set id = id + 10000 where id % 2 = 0",
            "delete from pairs where id % 100 = 1",
        )
        stage.arrive()
        drain(applier)
        query = "select id, code, words from pairs order by id"
        assert there.rows(query) == stage.source.execute(query).fetchall()
        assert there.rows("select count(*) from pairs where own = 'of ' || id % 10000") == [(1980,)]


def test_many_keys_that_two_rows_have_within_a_transaction(stage: Stage, cluster: Cluster):
    """The source's key is deferrable, the follower's is not."""
    table = "create table shifted (id int primary key, n int, words json)"
    deferred = "alter table shifted drop constraint shifted_pkey, add primary key (id) deferrable initially deferred"
    seq = made(stage, table, f"{deferred}, replica identity full")
    stage.run("""insert into shifted select g, -g, '{"a":  1}' from generate_series(1, 2000) g""")
    stage.arrive()
    with follower(stage, cluster, f"{table[:-1]}, own text default 'new')", seq=seq) as there:
        applier = there.applier(["shifted"], sizes=PassSizes(events=20, long=20000, relayed=10))
        drain(applier)
        there.run("update shifted set own = 'of ' || id")
        stage.transaction(
            "do $$ begin for k in 1..3000 loop update shifted set n = k where id = 7; end loop; end $$",
            "update shifted set id = id % 2000 + 1",
            """insert into shifted values (1500, 1, '{"b":  2}')""",
            "delete from shifted where id = 1500 and n <> 1",
        )
        stage.arrive()
        drain(applier)
        query = "select id, n, words::text from shifted order by id"
        assert there.rows(query) == stage.source.execute(query).fetchall()
        assert there.rows("select count(*) from shifted where own = 'of ' || (id + 1998) % 2000 + 1") == [(1999,)]


def test_rows_are_found_by_index_though_nobody_knows_how_many_they_are(stage: Stage, cluster: Cluster):
    table = "create table tall (id int primary key, n int)"
    seq = made(stage, table)
    stage.run("insert into tall select g * 50, 0 from generate_series(1, 4000) g")
    stage.arrive()
    with follower(stage, cluster, table, seq=seq) as there:
        applier = there.applier(["tall"], sizes=PassSizes())
        drain(applier)
        there.run("insert into tall select g, 0 from generate_series(1, 200000) g on conflict do nothing")
        stage.transaction("update tall set n = 1", "delete from tall where id % 100 = 0")
        stage.arrive()
        before = scans(there, "tall")
        drain(applier)
        assert scans(there, "tall") == before
        assert there.rows("select count(*), sum(n) from tall") == [(198_000, 2000)]


def scans(there: Follower, table: str) -> int:
    """How often the applier's session has scanned it."""
    there.session.execute("select pg_stat_force_next_flush()")  # done at the end of the statement
    row = there.session.execute("select seq_scan from pg_stat_user_tables where relname = %s", [table]).fetchone()
    assert row is not None
    return int(row[0])


def test_a_new_row_that_is_there_is_named(stage: Stage, cluster: Cluster):
    table = "create table added (id int primary key)"
    seq = made(stage, table)
    stage.transaction("insert into added select generate_series(1, 60)", "insert into added values (61)")
    stage.transaction("insert into added select generate_series(62, 99)", "insert into added values (100)")
    stage.arrive()
    for key in (17, 70):
        with follower(stage, cluster, table, f"insert into added values ({key})", seq=seq) as there:
            with pytest.raises(RowDiffersError) as stopped:
                drain(there.applier(["added"], sizes=FEW, connect=lambda: connecting(stage)))
            assert stopped.value.seq == seq_of(stage, "added", key)
            assert there.rows("select count(*) from added") == [(1 if key == 17 else 62,)]


def test_a_new_row_that_lacks_a_value_is_named(stage: Stage, cluster: Cluster):
    table = "create table lacking (id int primary key, n int)"
    seq = made(stage, table)
    stage.run("insert into lacking select g, g from generate_series(1, 90) g")
    stage.arrive()
    lacking = seq_of(stage, "lacking", 66)
    stage.log.execute("update sequin_events set record = record - 'n' where seq = %s", [lacking])
    with follower(stage, cluster, table, seq=seq) as there:
        with pytest.raises(NotFollowableError) as stopped:
            drain(there.applier(["lacking"], sizes=FEW, connect=lambda: connecting(stage)))
        assert (stopped.value.why, stopped.value.seq) == ("incomplete", lacking)


def test_a_domain_that_takes_no_null(stage: Stage, cluster: Cluster):
    types = ["create domain short as varchar(9) not null", "create domain word as short check (value <> '')"]
    table = "create table strict (id int primary key, words word, n short)"
    seq = made(stage, *types, table)
    stage.run("insert into strict select g, 'w' || g, 'n' from generate_series(1, 40) g")
    stage.arrive()
    stage.run("update strict set n = 'm' where id <= 20", "delete from strict where id > 25")
    stage.arrive()
    stage.log.execute(
        "update sequin_events set record = record - 'words', unchanged_columns = '{words}'"
        " where source_table_name = 'strict' and action = 'update'"
    )
    for sizes in (FEW, PassSizes(20, 20, 1000)):
        with follower(stage, cluster, *types, table, seq=seq) as there:
            drain(there.applier(["strict"], sizes=sizes))
            become_equal(stage, there, "strict")


@pytest.fixture
def filled(stage: Stage, cluster: Cluster) -> Iterator[Follower]:
    """Of a table with transactions of many sizes, of which it has none yet."""
    table = "create table many (id int primary key, n int, words text)"
    seq = made(stage, "drop table if exists many", table)
    for first in range(0, 1000, 100):
        stage.run(f"insert into many select g, 0, repeat('x', 300) from generate_series({first}, {first + 99}) g")
        stage.run("update many set n = n + 1 where id % 7 = 0", "delete from many where id % 13 = 0")
    stage.arrive()
    with follower(stage, cluster, table, seq=seq) as there:
        yield there


@pytest.fixture
def little_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less than one block."""
    monkeypatch.setattr(read_ahead, "BYTES", 5000)


@pytest.mark.usefixtures("little_waits")
def test_what_is_read_ahead_waits_until_there_is_room(stage: Stage, filled: Follower):
    drain(filled.applier(["many"], sizes=FEW, connect=lambda: connecting(stage)))
    become_equal(stage, filled, "many")


def test_nothing_is_lost_where_the_log_cannot_be_read_ahead(stage: Stage, filled: Follower):
    tried = list[bool]()

    def connect() -> Connection:
        tried.append(True)
        if len(tried) == 1:
            raise psycopg.OperationalError("no connection is left")
        found = connecting(stage)
        if len(tried) == 2:
            stage.log.execute("select pg_terminate_backend(%s)", [found.info.backend_pid])
        return found

    drain(filled.applier(["many"], sizes=FEW, connect=connect))
    assert len(tried) > 2
    become_equal(stage, filled, "many")


def test_reading_ahead_to_the_middle_of_a_pass_loses_nothing(
    stage: Stage, filled: Follower, monkeypatch: pytest.MonkeyPatch
):
    read, failed = OutcomeReader.relayed, list[bool]()

    def relayed(*given: Any) -> Iterator[bytes]:
        [block] = read(*given)
        if threading.current_thread() is threading.main_thread():
            yield block
            return
        yield block[: block.index(b"\n") + 1]
        failed.append(True)
        raise psycopg.OperationalError("the server closed the connection")

    monkeypatch.setattr(OutcomeReader, "relayed", relayed)
    drain(filled.applier(["many"], sizes=FEW, connect=lambda: connecting(stage)))
    assert failed
    become_equal(stage, filled, "many")


def test_a_table_that_changes_while_the_log_is_read_ahead(stage: Stage, filled: Follower):
    applier = filled.applier(["many"], sizes=FEW, connect=lambda: connecting(stage))
    applier.apply()
    stage.run("alter table many rename words to phrase", "update many set phrase = 'new' where id < 500")
    stage.arrive()
    with pytest.raises(NotFollowableError) as stopped:
        drain(applier)
    assert (stopped.value.why, applier.position.seq < stopped.value.seq) == ("changed", True)
    filled.run("alter table many rename words to phrase")
    table = oid(stage, "many")
    formed = TableToFollow("public", "many", reached=ReachedVersion(applier.tables[table].changes_at))
    drain(filled.applier({table: formed}, sizes=FEW, connect=lambda: connecting(stage)))
    query = "select id, n, phrase from many order by id"
    assert filled.rows(query) == stage.source.execute(query.encode()).fetchall()


def test_a_table_that_changes_while_a_large_transaction_is_applied(
    stage: Stage, filled: Follower, monkeypatch: pytest.MonkeyPatch
):
    """Behind which another one is in the log then, in another form."""
    applier = filled.applier(["many"], sizes=FEW)
    drain(applier)
    stage.run("update many set n = n + 1 where id < 100")
    stage.arrive()
    query = "select id, n, words from many order by id"
    before = stage.source.execute(query).fetchall()
    read, altered = LogReader.next, list[bool]()

    def next_pass(reader: LogReader, after: int, upto: int | None = None, **given: Any) -> Any:
        if given["continues"] and not altered:
            altered.append(True)
            stage.run("alter table many rename words to phrase", "update many set phrase = 'new' where id < 20")
            stage.arrive()
        return read(reader, after, upto, **given)

    monkeypatch.setattr(LogReader, "next", next_pass)
    with pytest.raises(NotFollowableError) as stopped:
        drain(applier)
    assert altered
    assert stopped.value.why == "changed"
    assert filled.rows(query) == before


def test_an_applier_that_is_closed_reads_no_more(stage: Stage, filled: Follower):
    name = "reads ahead of this test"
    found = list[Connection]()

    def connect() -> Connection:
        found.append(connections.connect(stage.config.database, "pipeline database", name=name))
        return found[-1]

    applier = filled.applier(["many"], sizes=FEW, connect=connect)
    applier.apply()
    applier.close()
    assert all(each.closed for each in found)
    before = filled.position()
    drain(applier)
    assert filled.position() > before
