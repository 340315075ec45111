"""The SQL in docs/how-to/consumers-in-sql.md runs as it stands, in its order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.fixtures.postgres import Cluster
from tests.fixtures.staged import Staged, Table, create, insert, staging_of

DOCS = Path(__file__).parents[4] / "docs/how-to/consumers-in-sql.md"
NEWEST = 4711
"""A seq that the page names."""


@pytest.fixture
def staged(cluster: Cluster) -> Iterator[Staged]:
    with staging_of(cluster, Table("orders")) as log:
        log.connection.execute(f"select setval('sequin_events_seq_seq', {NEWEST - 3})")
        log.connection.execute("create table totals (customer text primary key, amount numeric)")
        yield log


@pytest.fixture
def worker(cluster: Cluster) -> Iterator[None]:
    with cluster.connect() as connection:
        connection.execute("create role worker")
        yield
        connection.execute("drop role worker")


@pytest.mark.usefixtures("worker")
def test_every_statement_of_the_page_runs(staged: Staged):
    create(staged.connection, "totals")
    create(staged.connection, "audit", kind="cursor")
    staged.moved(*(insert("orders", id=number, customer="ann", amount=str(number)) for number in (1, 2, 3)))
    with psycopg.connect(staged.dsn, autocommit=True) as connection:
        for block in re.findall(r"```sql\n(.*?)```", DOCS.read_text(), re.DOTALL):
            connection.execute(block)
        assert connection.execute("select customer, amount from totals").fetchall() == [("ann", 6)]
        assert connection.execute("select position from pipeline.consumers where kind = 'cursor'").fetchone() == (
            NEWEST,
        )
        connection.execute("drop owned by worker")
