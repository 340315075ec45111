"""Which versions of a current state stay: all for a while, then one a day, then none but the newest."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from lake import ledger
from lake.states.ledger import StateLedger
from tests.fixtures.small_log import small_log

LAKE = "11111111-0000-0000-0000-000000000000"
HOUR, DAY = 3600.0, 86_400.0
_VERSIONS = """
    insert into pipeline.export_states (lake_id, table_id, dataset, seq, schema_version, columns, state, files, rows,
        buckets, form_id, committed_at, superseded_at)
    select %(lake)s, %(table)s, 'public.t' || %(table)s, %(hours)s - age, 0, '{}', 'committed', '[]', 0, 1, 1, at,
        case when age > 0 then at + interval '1 hour' end
    from generate_series(%(hours)s, 0, -1) age
    cross join lateral (select date_trunc('day', now() at time zone 'UTC') at time zone 'UTC' + interval '5 hours'
        - age * interval '1 hour' as at) placed
"""


@pytest.fixture
def log(database_dsn: str) -> Iterator[psycopg.Connection]:
    """Two tables, with a version each hour of the last ten days, the newest at 5 o'clock of this day."""
    with small_log(database_dsn, 0) as log:
        log.execute(
            "insert into pipeline.lakes (id, directory, events_table) values (%s, '/nowhere', 'public.sequin_events')",
            [LAKE],
        )
        for table in (1, 2):
            log.execute(_VERSIONS, {"lake": LAKE, "table": table, "hours": 240})
        yield log


def test_one_a_day_stays(log: psycopg.Connection, database_dsn: str) -> None:
    with ledger.open_ledger(database_dsn) as book:
        [lake] = book.lakes()
        states = StateLedger(book, lake)
        every = {(f"public.t{table}", seq) for table in (1, 2) for seq in range(241)}
        gone = {(each.dataset, each.seq) for each in states.superseded(3 * DAY, 7 * DAY)}
        left = sorted(seq for dataset, seq in every - gone if dataset == "public.t1")
        young = [seq for seq in left if seq > left[-1] - 50]
        assert young == list(range(left[-1] - 49, left[-1] + 1))
        days = [seq for seq in left if seq <= 240 - 5 - 4 * 24]  # before the fourth day that is over
        assert days == list(range(days[0], 140, 24))
        assert days[-1] == 240 - 5 - 1 - 4 * 24 and 2 <= len(days) <= 4, left
        assert {seq for dataset, seq in every - gone if dataset == "public.t2"} == set(left)
        assert len(states.superseded(3 * DAY)) > len(gone)

        some = next(each for each in states.superseded(3 * DAY) if (each.dataset, each.seq) not in gone)
        states.drop(some.id)  # its removal was begun
        assert some in states.superseded(3 * DAY, 7 * DAY)
        assert {each.seq for each in states.superseded(0.0, HOUR)} >= set(range(200))
