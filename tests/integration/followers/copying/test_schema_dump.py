"""A dump by the real `pg_dump`: what a source's owner writes in names and literals stays in them."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pipeline.errors import FollowerError
from pipeline.followers.copying import schema_dump
from tests.fixtures.followers import run
from tests.fixtures.postgres import Cluster, unique

HEAD = "\n--\n-- Name: x; Type: POLICY; Schema: public; Owner: -\n--\n\n"
WRITES = "); create table public.written (); --"
TEXTS = (f"a{HEAD}b", f"'{WRITES}", "\\restrict x\nSET x = ;\n\\", "$a$ -- E'\\' \"")
COLUMN = f'{HEAD}"'


def test_text_that_looks_like_an_entry_of_a_dump_stays_text(source_dsn: str, follower_dsn: str):
    create = sql.SQL("create table public.{} (id int primary key, {} text default {}, check ({} <> {}))")
    with psycopg.connect(source_dsn, autocommit=True) as source:
        for number, text in enumerate(TEXTS):
            name = sql.Identifier(f"t{number}")
            source.execute(create.format(name, sql.Identifier(COLUMN), text, sql.Identifier(COLUMN), text))
        tables = [f"public.t{number}" for number in range(len(TEXTS))]
        dump = schema_dump.read(source, source_dsn, tables)
    with psycopg.connect(follower_dsn, autocommit=True) as follower:
        run(follower_dsn, "".join([dump.before, *dump.after]))
        assert follower.execute("select to_regclass('public.written')").fetchone() == (None,)
        for table, text in zip(tables, TEXTS, strict=True):
            inserted = f"insert into {table} (id) values (1) returning *"
            assert_refused(follower, inserted, text)


def assert_refused(follower: psycopg.Connection, inserted: str, text: str) -> None:
    """The check of each table refuses the default of its column, if both are as at the source."""
    with pytest.raises(psycopg.errors.CheckViolation) as raised:
        follower.execute(inserted.encode())
    assert text in str(raised.value.diag.message_detail)


@pytest.mark.parametrize(("encoding", "name"), [("LATIN1", "größe"), ("WIN1252", "prix €"), ("EUC_JP", "注文")])
def test_a_non_ascii_name_is_found_in_a_database_of_another_encoding(
    source_cluster: Cluster, follower_dsn: str, encoding: str, name: str
):
    database = unique("encoded")
    create = "create database {} encoding {} locale 'C' template template0"
    with source_cluster.connect() as connection:
        connection.execute(sql.SQL(create).format(sql.Identifier(database), encoding))
    try:
        dsn = source_cluster.dsn(database)
        with psycopg.connect(dsn, client_encoding="UTF8") as source:
            source.execute(sql.SQL("create table public.{0} ({0} int)").format(sql.Identifier(name)))
            source.commit()
            dump = schema_dump.read(source, dsn, [f'public."{name}"'])
        with psycopg.connect(follower_dsn, autocommit=True) as follower:
            follower.execute((dump.preamble(["client_encoding"]) + dump.before).encode())
            assert follower.execute(sql.SQL("select {0} from public.{0}").format(sql.Identifier(name))).rowcount == 0
    finally:
        source_cluster.drop(database)


def test_a_role_that_may_not_read_is_told_the_remedy(source_dsn: str):
    role = unique("reader")
    run(source_dsn, f"create table t (id int); create role {role} login")
    try:
        with psycopg.connect(source_dsn) as source, pytest.raises(FollowerError) as raised:
            schema_dump.read(source, make_conninfo(source_dsn, user=role), ["public.t"])
    finally:
        run(source_dsn, f"drop role {role}")
    said, _, remedy = str(raised.value).rpartition("; ")
    assert "permission denied for table t" in said
    assert remedy == "let an administrator of the source run what `pipeline check --sql --roles USER,READER` prints"


def test_a_name_that_ends_its_comment_is_refused():
    head = "--\n-- Name: x\ncreate table public.written ();\n-- ; Type: TABLE; Schema: public; Owner: -\n--\n"
    with pytest.raises(FollowerError, match="a name at the source has a line break"):
        schema_dump.parse(head)
