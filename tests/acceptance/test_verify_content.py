"""`pipeline verify --content` beside a real server: every planted difference is found, and nothing else."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg

from pipeline.config import settings
from pipeline.operate.verify import content
from pipeline.server import schedule
from tests.fixtures.lagging import stopped
from tests.fixtures.server import Serving, run_command
from tests.fixtures.slots import drop_slot
from tests.fixtures.waiting import eventually

MAKE = """
create table odd (id int primary key, n numeric, t text, f float8, j json, a int[], at timestamptz, big text);
alter table odd alter big set storage external;
insert into odd select i, 1.50, 'x ', '-0', '{"b": 1, "a": 2}', '[0:1]={1,2}', '2024-01-01 00:00:00.000001+00',
    repeat(md5(i::text), 100) from generate_series(1, 12) i;
create table plain (id int primary key, n int);
insert into plain select i, i from generate_series(1, 300) i;
create table keyless (n int);
insert into keyless values (1), (2);
create table out (id int primary key, n int);
insert into out select i, i from generate_series(1, 9) i;
create publication pipeline for table odd, plain, out, keyless;
"""
EDITS = {
    "1 n": "record || '{\"n\": 1.5}'",
    "2 t": 'record || \'{"t": "x"}\'',
    "3 f": "record || '{\"f\": 0}'",
    "5 a": 'record || \'{"a": "{1,2}"}\'',
    "6 at": 'record || \'{"at": "2024-01-01 00:00:00.000002+00"}\'',
    "7 big": 'record || \'{"big": "x"}\'',
    "8 t": "record - 't'",
}
"""Row and column: how the event of that row is changed."""
FOUND = [
    *(("public.odd", key, "differs", [column]) for key, column in sorted(edit.split() for edit in [*EDITS, "4 j"])),
    ("public.out", "4", "differs", ["n"]),
    ("public.plain", "10", "differs", ["n"]),
    ("public.plain", "11", "not in the log", []),
    ("public.plain", "301", "not in the source", []),
]
WAITS_FOR_ROLES = """
select from pg_stat_activity
where datname = current_database() and application_name = 'pipeline verify' and query like '%pipeline.roles%'
"""


def differences(text: str) -> list[tuple[str, str, str, list[str]]]:
    return sorted(
        (table["table"], ",".join(each["key"]), each["kind"], [value["column"] for value in each["values"]])
        for table in json.loads(text)["tables"]
        for each in table["differences"]
    )


def test_planted_differences_are_found_and_nothing_else(
    serve: Callable[..., Serving], source_dsn: str, database_dsn: str, slot_name: str, tmp_path: Path
):
    given: dict[str, Any] = {"source_dsn": source_dsn, "database_dsn": database_dsn, "slot": slot_name}

    def command(*arguments: str) -> tuple[int, str]:
        ended = run_command(*arguments, folder=tmp_path, **given)
        return ended.returncode, ended.stdout + ended.stderr

    with (
        psycopg.connect(source_dsn, autocommit=True) as source,
        psycopg.connect(database_dsn, autocommit=True) as log,
    ):
        source.execute(MAKE.encode())
        server = serve()
        whole = "select count(*) from pipeline.snapshots where state = 'complete'"
        eventually(lambda: log.execute(whole).fetchone() == (4,))
        assert server.stop() == 0
        assert "start `pipeline serve`" in command("verify", "--content")[1]
        drop_slot(source, slot_name)
        source.execute("alter publication pipeline drop table out")
        source.execute("update out set n = -1 where id = 4")
        source.execute("alter publication pipeline add table out")
        assert command("sources", "adopt", "--yes")[0] == 0
        server = serve()
        source.execute("set session_replication_role = replica")
        source.execute("update plain set n = 7 where id = 12")
        source.execute("update odd set t = null where id = 8")
        with ThreadPoolExecutor(1) as beside:
            with stopped(server.process.pid):  # it cannot restart the role, until this ends
                os.kill(server.child_pid("shuffle"), signal.SIGKILL)
                asked = beside.submit(command, "verify", "--content", "--json")
                eventually(lambda: log.execute(WAITS_FOR_ROLES).rowcount == 1)
            code, text = asked.result()
        assert (code, differences(text)) == (1, [("public.out", "4", "differs", ["n"])])
        for edit, change in EDITS.items():
            log.execute(
                f"""update sequin_events set record = {change}
                where source_table_name = 'odd' and record_pk = '{edit.split()[0]}'""".encode()
            )
        for statement in (
            "update sequin_events set exact = exact || jsonb_build_object('j', '{\"a\": 2, \"b\": 1}')"
            " where source_table_name = 'odd' and record_pk = '4'",
            "update sequin_events set record = record || '{\"n\": 0}'"
            " where source_table_name = 'plain' and record_pk = '10'",
            "delete from sequin_events where source_table_name = 'plain' and record_pk = '11'",
            """insert into sequin_events (source_database_id, source_epoch, commit_lsn, commit_idx, source_table_oid,
                source_table_schema, source_table_name, record_pk, record, action, committed_at)
            select source_database_id, source_epoch, commit_lsn, 100000, source_table_oid, source_table_schema,
                source_table_name, '301', '{"id": 301, "n": 301}', action, committed_at
            from sequin_events where source_table_name = 'plain' and record_pk = '300'""",
        ):
            log.execute(statement.encode())
        code, text = command("verify", "--content", "--json")
        assert (code, differences(text)) == (1, FOUND)
        assert '"source"' not in text, "values only where they are asked for"
        found = {table["table"]: table for table in json.loads(text)["tables"]}
        assert found["public.keyless"]["state"] == "refused"
        assert found["public.plain"]["rows"] == 300
        code, text = command("verify", "--content", "odd", "--show-values")
        assert code == 1
        assert "'x '" in text and "absent" in text and "8 rows differ" in text
        schedule.verify(settings.load(**given), lambda: False)
        code, text = command("status")
        assert "12 differences" in text and "public.odd" in text and "by schedule" in text
        assert "pipeline_verification_differing_rows 12.0" in server.get("/metrics").text
        assert command("verify", "--content", "keyless")[0] == 1
        assert "is it one of public.plain" in command("verify", "--content", "plane")[1]
        assert "only with --content" in command("verify", "odd")[1]
        with stopped(server.process.pid), stopped(server.child_pid("snapshot")):  # it would be killed for its silence
            source.execute("alter table keyless add primary key (n)")
            source.execute("alter table out alter n set not null; create unique index other on out (n)")
            source.execute("alter table out replica identity using index other")
            source.execute("delete from out where id = 2")
            source.execute("alter table out replica identity default")
            rekeyed = content.run(settings.load(**given), ["keyless", "out"], asked_by="command").tables
        assert {table.state for table in rekeyed} == {"refused"}
        assert all("another key" in (table.reason or "") for table in rekeyed), "as one was for a while"
        source.execute("alter table odd rename t to was; alter table odd rename big to t")
        source.execute("alter table odd rename was to big")

        def write(*_: object) -> None:
            source.execute("update odd set n = n")

        (exchanged,) = content.run(settings.load(**given), ["odd"], on_look=write, asked_by="command").tables
        assert exchanged.state == "refused" and "the table was altered while" in (exchanged.reason or "")
        source.execute("alter table plain alter n type int using n * 2")
        (rewritten,) = content.run(settings.load(**given), ["plain"], asked_by="command").tables
        assert rewritten.state == "refused" and "DDL has" in (rewritten.reason or ""), "also before the stream knows"
