"""What the source's database and roles are set to does not matter, nor its encoding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from psycopg import sql

from pipeline.config import settings
from tests.fidelity.types.stage import Comparing
from tests.fixtures.postgres import NEWEST, Cluster, unique

pytestmark = pytest.mark.xdist_group("fidelity")

LATIN1 = "create database {} template template0 encoding 'LATIN1' locale_provider libc lc_collate 'C' lc_ctype 'C'"
OF_DATABASE = {
    "DateStyle": "German, DMY",
    "IntervalStyle": "sql_standard",
    "extra_float_digits": "-15",
    "bytea_output": "escape",
    "client_encoding": "LATIN1",
}
OF_ROLE = {"TimeZone": "America/St_Johns", "IntervalStyle": "iso_8601", "search_path": "shop, public"}
TABLE = """
    create schema shop; create type shop.size as enum ('groß');
    create table public.sized (id integer primary key, at timestamptz, day date, took interval, f float8, g float4,
        part bytea, price money, size shop.size, kind regtype, words text, "größe" text, one "char", doc jsonb,
        raw json)
"""
VALUES = """
    insert into public.sized values (1, '2024-02-01 01:02:03+00', '2024-02-01', '-1 mon +1 day -00:00:01',
        0.1::float8 + 0.2::float8, 1.1, '\\x00ff5c', '-1234.50', 'groß', 'shop.size', 'é ü ß', 'ö', 'x',
        '{"ä": "\\u00e4"}', '{"ä":  "\\u00e4"}')
"""
PRINTED = """
    select record #>> '{at}', record #>> '{day}', record #>> '{took}', record #>> '{f}', record #>> '{part}',
        record #>> '{price}', record #>> '{kind}', record #>> '{größe}', exact #>> '{raw}'
    from public.sequin_events where source_table_name = 'sized'
"""


@contextmanager
def latin1(cluster: Cluster) -> Iterator[str]:
    """A database of that encoding, which is set to print values otherwise, for the role that replicates too."""
    name = unique("latin")
    with cluster.connect() as connection:
        user = sql.Identifier(connection.info.user)
        connection.execute(sql.SQL(LATIN1).format(sql.Identifier(name)))
        for setting, value in OF_DATABASE.items():
            connection.execute(_set("alter database {}", setting, value, sql.Identifier(name)))
        for setting, value in OF_ROLE.items():
            connection.execute(_set("alter role {} in database {}", setting, value, user, sql.Identifier(name)))
    try:
        yield cluster.dsn(name)
    finally:
        cluster.drop(name)


def _set(what: str, setting: str, value: str, *names: sql.Identifier) -> sql.Composed:
    listed = sql.SQL(", ").join(map(sql.Literal, value.split(", ")))
    return sql.SQL(what + " set {} = {}").format(*names, sql.Identifier(setting), listed)


@pytest.fixture(params=NEWEST)
def stage(
    request: pytest.FixtureRequest, clusters: Callable[[int], Cluster], database_dsn: str, slot_name: str
) -> Iterator[Comparing]:
    with latin1(clusters(request.param)) as source_dsn:
        config = settings.load(source_dsn=source_dsn, database_dsn=database_dsn, slot=slot_name)
        with Comparing(config) as made:
            made.run(TABLE)
            yield made


def test_values_are_printed_as_always(stage: Comparing) -> None:
    stage.replicate(VALUES)
    assert stage.log.execute(PRINTED.encode()).fetchall() == [
        ("2024-02-01 01:02:03+00", "2024-02-01", "-1 mons +1 day -00:00:01", "0.30000000000000004", "\\x00ff5c",
         "-$1,234.50", "shop.size", "ö", '{"ä":  "\\u00e4"}')
    ]  # fmt: skip
    assert stage.differing("sized", stage.events("sized")) == []


def test_messages_come_in_the_letters_of_their_source(stage: Comparing) -> None:
    stage.replicate(
        "select pg_logical_emit_message(true, 'größe', 'Käse'); "
        """select pg_logical_emit_message(true, 'pipeline:annotations', '{"by": "Jürgen"}'); """
        "insert into public.sized (id) values (99)"
    )
    written = "select source_table_name, record ->> 'content' from public.sequin_events where action = 'message'"
    assert ("größe", "Käse") in stage.log.execute(written).fetchall()
    annotated = "select transaction_annotations ->> 'by' from public.sequin_events where record_pk = '99'"
    assert stage.log.execute(annotated).fetchall() == [("Jürgen",)]
