"""Frames are those of the plugin wal2json, byte for byte: beside the plugin itself, else by what was recorded of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import psycopg
import pytest

from tests.fixtures import wal2json, wal2json_workloads
from tests.fixtures.postgres import Cluster
from tests.fixtures.wal2json import Sent

pytestmark = pytest.mark.xdist_group("wal2json")

needs_plugin = pytest.mark.skipif(not wal2json.installed(), reason="Debian's postgresql-15-wal2json is not installed")
SEEDS = 0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 6))


def require_same(sent: Sent) -> int:
    """Raises what differs first; returns how many frames there were."""
    ours, theirs = wal2json.ours(sent), wal2json.theirs(sent)
    ours = [frame for frame in ours if b'"truncated":' not in frame]
    for one, other in zip(ours, theirs, strict=False):
        assert one == repaired(other)
    assert len(ours) == len(theirs)
    return len(ours)


def repaired(frame: bytes) -> bytes:
    """Where the plugin writes what is no JSON, for the name of a type: in our form."""
    return frame.replace(rb'"Mixed ""case"', rb'"\"Mixed \"\"case\""').replace(
        b'"od%s ""type",', rb'"\"od%s \"\"type\"",'
    )


@pytest.fixture(scope="module")
def source(clusters: Callable[[int], Cluster]) -> Iterator[psycopg.Connection]:
    """With all tables, and a publication of them."""
    cluster = clusters(wal2json.MAJOR)
    with cluster.database("plugin") as dsn, psycopg.connect(dsn, autocommit=True) as connection:
        wal2json_workloads.prepare(connection)
        yield connection


@needs_plugin
def test_all_types_beside_the_plugin(source: psycopg.Connection) -> None:
    with wal2json.compared(source) as comparing:
        for statement in wal2json_workloads.types(source):
            source.execute(statement)
        assert require_same(comparing.sent()) > 80


@needs_plugin
@pytest.mark.parametrize("seed", SEEDS)
def test_random_changes_beside_the_plugin(source: psycopg.Connection, seed: int) -> None:
    with wal2json.compared(source) as comparing:
        wal2json_workloads.Writer(source, seed).transactions(60)
        assert require_same(comparing.sent()) > 10


@needs_plugin
def test_a_truncate_is_empty_in_the_plugin(source: psycopg.Connection) -> None:
    with wal2json.compared(source) as comparing:
        source.execute("truncate keyed, two_keys")
        sent = comparing.sent()
    (ours,) = (json.loads(frame) for frame in wal2json.ours(sent))
    assert [json.loads(frame) for frame in sent.frames] == [{"nextlsn": ours["nextlsn"], "change": []}]
    assert ours["truncated"] == [{"schema": "public", "table": "keyed"}, {"schema": "public", "table": "two_keys"}]


def test_recorded_frames() -> None:
    assert sum(require_same(sent) for sent in wal2json.recorded()) > 200
