"""The text of a key, made by the worker, by the SQL of the server, and by the SQL of the reader for Spark."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from pipeline.capture.schema_history import catalog_table
from pipeline.consumers.queue.items import key_of_record
from pipeline.wal.encoding import INT4, JSON, RowEncoder
from pipeline.wal.record_key import LONGEST_KEY
from pyspark_sequin_events.selection import KEY_OF_RECORD
from tests.fidelity.types import cases, tables
from tests.fidelity.types.cases import Case
from tests.fixtures.stage import Stage

pytestmark = pytest.mark.xdist_group("fidelity")  # for --dist loadgroup: one server of each version

_GIVEN = {"record": "%(record)s::jsonb", "names": "%(names)s::text[]", "columns": "%(columns)s::jsonb"}
QUERY = f"""
    select server.record_pk, spark.record_pk, server.record = spark.record
    from ({key_of_record(**_GIVEN)}) server cross join ({KEY_OF_RECORD.format(**_GIVEN)}) spark
"""
KEYS = (("k",), ("n", "k"))


def printed(stage: Stage, case: Case) -> list[bytes]:
    """The case's values as pgoutput sends them."""
    texts = [
        stage.source.execute(
            sql.SQL("select pg_catalog.format('%s', cast({} as {}))").format(sql.Literal(value), sql.SQL(case.type))
        ).fetchall()[0][0]
        for value in case.values
    ]
    return [text.encode() for text in texts]


def base_type(stage: Stage, case: Case) -> int:
    """As the relation history has it: of a domain over json or jsonb that type's."""
    query = sql.SQL("select cast(null as {})").format(sql.SQL(case.type))
    description = stage.source.execute(query).description if case.nulls else None
    oid = description[0].type_code if description else stage.source.execute(OID, [case.type]).fetchall()[0][0]
    return catalog_table.type_names(stage.source, [oid])[oid][1]


OID = "select %s::regtype::oid::bigint"


def keys_of(stage: Stage, type_oid: int, text: bytes, key: Sequence[str]) -> tuple[str, str, str]:
    """Return the key that the worker writes, the one of the server's SQL, and the one of Spark's reader."""
    columns = [("n", INT4), ("k", type_oid)]
    names = [name for name, _ in columns]
    encoded = RowEncoder(columns, [names.index(name) for name in key]).encode([b"7", text])
    values = {
        "record": encoded.record.decode(),
        "names": list(key),
        "columns": Jsonb([{"name": name, "base_type_oid": oid} for name, oid in columns]),
    }
    ((server, spark, is_same_record),) = stage.log.execute(QUERY.encode(), values).fetchall()
    assert is_same_record
    return encoded.record_pk.decode(), server, spark


@pytest.mark.parametrize("title", cases.GROUPS)
def test_all_three_make_the_same_key_of_each_type(stage: Stage, title: str) -> None:
    compared = 0
    for case in tables.columns(stage.source, title).values():
        type_oid = base_type(stage, case)
        if type_oid == JSON:  # no key can be of it
            continue
        for text in printed(stage, case):
            for key in KEYS:
                worker, server, spark = keys_of(stage, type_oid, text, key)
                assert worker == server == spark, (case.type, text, key)
                compared += 1
    assert compared


@pytest.mark.parametrize("text", ["x" * LONGEST_KEY, "x" * (LONGEST_KEY + 1), "é" * (LONGEST_KEY // 2 + 1)])
def test_a_long_key_is_its_digest_in_all_three(stage: Stage, text: str) -> None:
    worker, server, spark = keys_of(stage, 25, text.encode(), ("k",))
    size = len(text.encode())
    assert worker == server == spark == (text if size <= LONGEST_KEY else f"sha256:{sha256(text.encode()).hexdigest()}")
