"""What filling in costs the shuffler: updates that lack an unchanged value of 10 KB beside updates that have it.

`python -m tests.benchmarks.filling [UPDATES]` prints events a second of each; each run moves the same number of rows.
"""

from __future__ import annotations

import sys
import time
import uuid

import psycopg
from psycopg.types.json import Jsonb

from pipeline import db
from tests.benchmarks.processes import cpu_seconds
from tests.fixtures.postgres import temporary_server
from tests.fixtures.shuffling import move, shuffler

KEYS, SEGMENT = 1_000, 2_000
VALUE = "(select string_agg(md5(k::text || i), '') from generate_series(1, 320) i)"
MADE = """
    insert into pipeline.sources (id, system_identifier, database_name, slot) values (%(source)s, '1', 'd', 's');
    insert into pipeline.replication_progress (source_id, epoch, position) values (%(source)s, 0, 0);
    insert into pipeline.relations (source_id, epoch, relation_oid, relation_schema, relation_name, table_oid,
        table_schema, table_name, replica_identity, columns, key_columns, from_lsn)
    values (%(source)s, 0, 7, 'public', 't', 7, 'public', 't', 'd', %(columns)s, '{id}', 0);
    create unlogged table made as select k, %(made)s as big from generate_series(0, {keys} - 1) k;
"""
STAGED = """
    create table pipeline.wal_events_{segment:05d} () inherits (public.wal_events);
    insert into pipeline.wal_events_{segment:05d} (commit_lsn, commit_idx, ordinal, relation_id, xid, committed_at,
        action, record_pk, record, unchanged_columns)
    select {first} + n + 1, 0, {first} + n, 1, 1, now(), '{action}', k::text,
        case when {full} then json_build_object('id', k, 'n', n, 'big', m.big)
            else json_build_object('id', k, 'n', n) end,
        case when not {full} then '["big"]' end
    from generate_series(0, {rows} - 1) n cross join lateral (select ({first} + n) % {keys} as k) key
    join made m using (k)
    order by n;
    insert into pipeline.segments (id, state, source_id, worker, first_lsn, last_lsn, first_ordinal, row_count)
    overriding system value
    values ({segment}, 'full', '{source}', 0, {first} + 1, {first} + {rows}, {first}, {rows});
    update pipeline.replication_progress set position = {first} + {rows}, commit_lsn = {first} + {rows};
"""


class Stage:
    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.source = uuid.uuid4()
        self.connection = psycopg.connect(dsn, autocommit=True, cursor_factory=psycopg.ClientCursor)
        columns = [{"name": name, "type_oid": oid} for name, oid in (("id", 23), ("n", 23), ("big", 25))]
        made = MADE.replace("{keys}", str(KEYS)).replace("%(made)s", VALUE)
        self.connection.execute(made, {"source": self.source, "columns": Jsonb(columns)})
        self._rows = self._segments = 0

    def stage(self, rows: int, action: str, *, full: bool) -> None:
        for _ in range(rows // SEGMENT):
            self._segments += 1
            values = {"segment": self._segments, "first": self._rows, "rows": SEGMENT, "keys": KEYS}
            self.connection.execute(STAGED.format(**values, action=action, full=full, source=self.source))
            self._rows += SEGMENT

    def shuffle(self) -> tuple[float, float]:
        """Seconds until all is moved, and those of a processor that Postgres took for it."""
        with db.connect(self.dsn, "pipeline database") as connection:
            made = shuffler(connection, self.source)
            started, used = time.perf_counter(), _cpu(connection)
            move(made)
            return time.perf_counter() - started, _cpu(connection) - used


def _cpu(connection: db.Connection) -> float:
    return cpu_seconds(connection.info.backend_pid)


def main(updates: int) -> None:
    with temporary_server(18) as cluster, cluster.database("filling", cluster.template) as dsn:
        stage = Stage(dsn)
        stage.stage(KEYS * 2, "insert", full=True)
        stage.shuffle()
        for _ in range(2):
            for full, what in ((True, "with the value"), (False, "filled in")):
                stage.stage(updates, "update", full=full)
                seconds, used = stage.shuffle()
                print(
                    f"updates {what}: {updates / seconds:,.0f} events/s, {used / updates * 1e6:,.0f} µs of a core each",
                    flush=True,
                )
        row = stage.connection.execute(
            "select count(*), count(*) filter (where length(record ->> 'big') = 10240 and unchanged_columns is null)"
            " from sequin_events"
        ).fetchone()
        print("events, and those that have the value:", row)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
