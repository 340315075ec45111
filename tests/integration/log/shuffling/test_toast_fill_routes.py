"""A row's last event may be in another events table than the next one, and of the same segment."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pipeline.config.routes import Route
from tests.fixtures.filling import Filling, big, filling
from tests.fixtures.postgres import Cluster

INSERTS = Route(actions=("insert",), events_table="public.inserts")
RENAMED = Route(tables=("public.renamed*",), events_table="public.renamed_events")
ALL = """
    select record, unchanged_columns from (
        select * from sequin_events union all select * from public.inserts union all select * from public.renamed_events
    ) e where source_table_oid = %s::regclass::oid::bigint and action <> 'delete' order by commit_lsn, commit_idx
"""


@pytest.fixture(scope="module")
def stage(clusters: Callable[[int], Cluster]) -> Iterator[Filling]:
    with filling(clusters(18)) as made:
        yield made


def test_values_are_found_in_every_events_table(stage: Filling) -> None:
    stage.shuffle_by(routes=[INSERTS, RENAMED])
    name = stage.table("id int primary key, a text, n int")
    stage.run(f"insert into {name} values (1, {big('a')}, 0)", f"update {name} set n = 1")
    stage.transaction(
        f"update {name} set a = {big('b')}",
        f"update {name} set n = 2",
        f"delete from {name}",
        f"insert into {name} values (1, {big('c')}, 3)",
        f"update {name} set n = 4",
    )
    stage.arrive()
    stage.shuffle_by(routes=[RENAMED])
    stage.run(f"update {name} set n = 5", f"delete from {name}", f"insert into {name} values (1, {big('d')}, 6)")
    stage.arrive()
    stage.shuffle_by(routes=[INSERTS, RENAMED])
    stage.run(
        f"update {name} set n = 7",
        f"alter table {name} rename to renamed_{name}",
        f"update renamed_{name} set n = 8",
        f"update renamed_{name} set a = {big('e')}",
        f"alter table renamed_{name} rename to {name}",
        f"update {name} set n = 9",
    )
    stage.arrive()
    events = stage.log.execute(ALL.replace("%s::regclass::oid::bigint", str(oid(stage, name)))).fetchall()
    assert [record for record, _ in events] == stage.held(name)
    assert [unchanged for _, unchanged in events] == [None] * len(events)


def oid(stage: Filling, name: str) -> int:
    row = stage.source.execute("select %s::regclass::oid::bigint", [name]).fetchone()
    assert row
    return int(row[0])
