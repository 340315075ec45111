"""docs/schema.sql and docs/reference/schema.md show what a migration makes. `make generated` writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.fixtures.postgres import Cluster
from tests.migration import page


@pytest.fixture(scope="module")
def newest(clusters: Callable[[int], Cluster]) -> Cluster:
    return clusters(page.MAJOR)


@pytest.fixture
def migrated(newest: Cluster) -> Iterator[str]:
    with newest.database("schema", newest.template) as dsn:
        yield dsn


def test_the_schema_is_that_of_a_migrated_database(newest: Cluster, migrated: str) -> None:
    assert page.SCHEMA.read_text() == page.schema(newest, migrated)


def test_the_list_of_tables_is_current(migrated: str) -> None:
    assert page.PART.is_current(page.tables(migrated))
