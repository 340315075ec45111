"""The SQL in docs/reference/consumers.md runs as it stands, in its order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.fixtures.postgres import Cluster
from tests.fixtures.staged import Staged, Table, create, insert, staging_of

DOCS = Path(__file__).parents[4] / "docs/reference/consumers.md"
NEWEST = 4711
"""A seq that the page names."""


@pytest.fixture
def staged(cluster: Cluster) -> Iterator[Staged]:
    with staging_of(cluster, Table("orders")) as log:
        log.connection.execute(f"select setval('sequin_events_seq_seq', {NEWEST - 3})")
        yield log


def test_every_statement_of_the_page_runs(staged: Staged):
    create(staged.connection, "audit", kind="cursor")
    staged.moved(*(insert("orders", id=number) for number in (1, 2, 3)))
    blocks = re.findall(r"```sql\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert blocks
    with psycopg.connect(staged.dsn, autocommit=True) as connection:
        for block in blocks:
            connection.execute(block)
        position = connection.execute("select position from pipeline.consumers where name = 'audit'").fetchone()
    assert position == (NEWEST,)
