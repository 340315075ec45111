"""Whatever an events table's sequence says, no event comes at or below a seq that a reader may have passed (G4)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pipeline.config.routes import Route
from pipeline.errors import StatementRefusedError
from pipeline.log.partitions import LAST_SEQ
from pipeline.log.table import EventsTable
from tests.fixtures.postgres import Cluster
from tests.fixtures.shuffling import move
from tests.fixtures.staged import Staged, Table, delete, insert, staging_of

DELETED = EventsTable("public", "deleted_events")
BACK = {
    "to 1": "select setval('public.sequin_events_seq_seq', 1)",
    "by one": "select setval('public.sequin_events_seq_seq', 2)",
    "to the newest, not called": "select setval('public.sequin_events_seq_seq', 3, false)",
    "as new": "alter sequence public.sequin_events_seq_seq restart",
}


@pytest.fixture(scope="module")
def staging(cluster: Cluster) -> Iterator[Staged]:
    with staging_of(cluster, Table("t")) as made:
        yield made


def seqs(staged: Staged, table: str = "public.sequin_events") -> list[int]:
    return [seq for (seq,) in staged.connection.execute(f"select seq from {table} order by commit_lsn, commit_idx")]


def test_a_sequence_that_was_set_far_ahead_gets_one_partition_for_the_gap(staged: Staged):
    shuffler = staged.shuffler()
    staged.commit(insert("t", id=1))
    move(shuffler)
    before = staged.connection.execute(
        "select count(*) from pg_inherits where inhparent = 'sequin_events'::regclass"
    ).fetchone()
    staged.connection.execute("select setval('public.sequin_events_seq_seq', 5000000000000)")
    staged.commit(insert("t", id=2))
    move(shuffler)
    assert seqs(staged) == [1, 5_000_000_000_001]
    after = staged.connection.execute(
        "select count(*) from pg_inherits where inhparent = 'sequin_events'::regclass"
    ).fetchone()
    assert before and after and after[0] - before[0] <= 2  # the second one is made ahead


@pytest.mark.parametrize("newest", [LAST_SEQ - 1, LAST_SEQ, 2**63 - 1])
def test_a_sequence_at_its_end_stops_the_shuffler_with_a_remedy(staged: Staged, newest: int):
    shuffler = staged.shuffler()
    staged.commit(insert("t", id=1))
    move(shuffler)
    staged.connection.execute(f"select setval('public.sequin_events_seq_seq', {newest})")
    staged.commit(*(insert("t", id=each) for each in (2, 3, 4)))
    for restarted in (False, True):
        with pytest.raises(
            StatementRefusedError, match=r"^the sequence of public.sequin_events is at its end: .*set it back"
        ):
            move(staged.shuffler() if restarted else shuffler)
    staged.connection.execute("select setval('public.sequin_events_seq_seq', max(seq)) from sequin_events")
    move(staged.shuffler())
    assert seqs(staged) == [1, 2, 3, 4]


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
@pytest.mark.parametrize("back", BACK)
def test_a_sequence_that_was_set_back_is_mended(
    staged: Staged, back: str, restarted: bool, caplog: pytest.LogCaptureFixture
):
    shuffler = staged.shuffler()
    staged.commit(*(insert("t", id=each) for each in (1, 2, 3)))
    move(shuffler)
    staged.connection.execute(BACK[back].encode())
    staged.commit(insert("t", id=4))
    staged.commit(insert("t", id=5))
    move(staged.shuffler() if restarted else shuffler)
    assert seqs(staged) == [1, 2, 3, 4, 5]
    assert staged.connection.execute("select last_value from sequin_events_seq_seq").fetchone() == (5,)
    assert "was behind its newest event" in caplog.text


def test_what_retention_has_dropped_since_was_read_too(staged: Staged):
    staged.moved(*(insert("t", id=each) for each in (1, 2, 3)))
    staged.connection.execute("truncate public.sequin_events restart identity")
    staged.moved(insert("t", id=4))
    assert seqs(staged) == [4]


def test_a_table_of_a_route_and_what_is_recorded_meanwhile(staged: Staged):
    shuffler = staged.shuffler(routes=[Route(actions=("delete",), events_table=str(DELETED))])
    staged.commit(insert("t", id=1), insert("t", id=2), delete("t", id=1), delete("t", id=2))
    move(shuffler)
    for table in ("sequin_events", DELETED.name):
        staged.connection.execute(f"select setval('public.{table}_seq_seq', 1)")
    staged.commit(delete("t", id=3))
    move(shuffler)
    assert seqs(staged, str(DELETED)) == [1, 2, 3]
    assert staged.connection.execute("select last_seq from pipeline.shuffle_progress").fetchone() == (2,)
    staged.moved(insert("t", id=4))
    assert seqs(staged) == [1, 2, 3] and seqs(staged, str(DELETED)) == [1, 2, 3]
