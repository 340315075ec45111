"""Sessions of other systems' clients at a real source: what is said of them, and what is left to them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import pq

from pipeline.capture.catchup import limits
from pipeline.capture.source import slots, sources, timeline
from pipeline.capture.source.sources import ReplicationSource
from pipeline.cli.render import losses
from pipeline.config.settings import Config, load
from pipeline.operate import slot_owners, status
from pipeline.operate.repair.adopt import adopt
from pipeline.operate.repair.adoption_report import AdoptionReport
from pipeline.postgres import connections, session_settings
from pipeline.postgres.queries import statement
from pipeline.wires.pgdeltastream import status as session_status
from pipeline.wires.pgdeltastream.sessions import store
from pipeline.wires.pgdeltastream.sessions.store import NAME_PREFIX, StoredSession
from tests.fixtures.postgres import unique
from tests.fixtures.replicating import replicate_first
from tests.fixtures.server import run_command
from tests.fixtures.waiting import eventually


class Held:
    """A source that is known to its pipeline database, and sessions there."""

    def __init__(self, stack: ExitStack, config: Config) -> None:
        self.config, self._stack = config, stack
        self.source = stack.enter_context(
            connections.connect(config.source, "source", settings=session_settings.SERVER)
        )
        self.pipeline = stack.enter_context(connections.connect(config.database, "pipeline database"))
        self.cluster = timeline.read_identity(self.source).system_identifier
        stored = sources.find(self.pipeline, None)
        if stored is None:
            stored = ReplicationSource(uuid.uuid4(), 0, self.cluster, str(self.source.info.dbname), config.slot)
            sources.add(self.pipeline, stored)
        self.source_id = stored.id

    def session(self, *, made: bool = True) -> StoredSession:
        """A session with its slot, both with an unused name."""
        slot = unique("delta")
        begun = store.begin(
            self.pipeline,
            slot=slot,
            wire="pgdeltastream",
            source_id=self.source_id,
            epoch=0,
            system_identifier=self.cluster,
            made_after=0,
        )
        assert begun is not None
        if not made:
            return begun
        found = store.ready(self.pipeline, begun.id, slots.create(self.source, slot))
        assert found is not None
        return found

    def connect(self, slot: str, *commands: str) -> None:
        """A session's connection to the source, as long as the test lasts."""
        text = psycopg.conninfo.make_conninfo(
            self.config.source, replication="database", application_name=NAME_PREFIX + slot
        )
        connection = pq.PGconn.connect(text.encode())
        self._stack.callback(connection.finish)
        for command in commands:
            result = connection.exec_(command.encode())
            assert result.status in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COPY_BOTH), result.error_message

    def stream(self, slot: str) -> None:
        self.source.execute("create publication anything")
        self.connect(
            slot, f"START_REPLICATION SLOT {slot} LOGICAL 0/0 (proto_version '1', publication_names 'anything')"
        )

    def read(self) -> dict[str, session_status.SessionStatus]:
        """As the status has them, by slot."""
        now = status.collect(self.config)
        assert now.sessions is not None
        return {each.slot: each for each in now.sessions.live}


@pytest.fixture
def config(source_dsn: str, database_dsn: str, slot_name: str, tmp_path: Path) -> Config:
    given: dict[str, Any] = {"wires": "pgdeltastream", "sessions_max": 3, "export_schedule": "off"}
    return load(source_dsn=source_dsn, database_dsn=database_dsn, slot=slot_name, data_dir=tmp_path, **given)


@pytest.fixture
def held(config: Config) -> Iterator[Held]:
    with ExitStack() as stack:
        yield Held(stack, config)


def test_each_state_as_the_source_has_it(held: Held) -> None:
    making, exported, streamed, idle, lost = held.session(made=False), *(held.session() for _ in range(4))
    slots.drop(held.source, exported.slot)
    held.connect(exported.slot, f"CREATE_REPLICATION_SLOT {exported.slot} LOGICAL pgoutput (SNAPSHOT 'export')")
    held.stream(streamed.slot)
    slots.drop(held.source, lost.slot)
    found = held.read()
    assert [found[each.slot].state for each in (making, exported, streamed, idle, lost)] == [
        "making",
        "snapshot",
        "streamed",
        "idle",
        "lost",
    ]
    assert (found[idle.slot].retained_bytes or 0) > 0 and found[lost.slot].retained_bytes is None
    assert (found[streamed.slot].reader or "").startswith(NAME_PREFIX)


def test_a_source_that_does_not_answer(held: Held) -> None:
    idle = held.session()
    away = held.config.model_copy(update={"source_dsn": None})
    away = away.with_databases(
        psycopg.conninfo.make_conninfo(held.config.source, host="127.0.0.1", port="1"), held.config.database
    )
    now = status.collect(away)
    assert now.sessions is not None
    assert [(each.slot, each.state) for each in now.sessions.live] == [(idle.slot, "unknown")]


def test_no_slot_of_a_session_counts_as_ours(held: Held) -> None:
    held.session()
    now = status.collect(held.config)
    assert now.slots == [] and now.retained_bytes is None and now.confirmed_lsn is None


def test_those_that_have_ended_are_told_with_their_reasons(held: Held) -> None:
    first, second = held.session(), held.session()
    for each in (first, second):
        store.end(held.pipeline, each.id, f"because of {each.id}")
    now = status.collect(held.config)
    assert now.sessions is not None and now.sessions.live == []
    assert [(each.slot, each.reason) for each in now.sessions.ended] == [
        (second.slot, f"because of {second.id}"),
        (first.slot, f"because of {first.id}"),
    ]


def test_without_sessions_the_source_gets_no_query_and_the_database_one(held: Held) -> None:
    assert session_status.read_source(None, [], []) == session_status.SessionsAtSource({}, frozenset())  # type: ignore[arg-type]
    held.pipeline.execute("set enable_seqscan = off")
    plan = held.pipeline.execute("explain " + statement("wires.pgdeltastream.sessions", "recent_sessions")).fetchall()
    assert sum("Index Scan" in line for (line,) in plan) == 2, plan


def test_whose_a_slot_is(held: Held, tmp_path: Path) -> None:
    mine, theirs = held.session(), unique("delta")
    ours, part = held.config.slot, slots.part_name(held.config.slot, 2)
    for name in (ours, part, theirs):
        slots.create(held.source, name)
    here = [slot for slot in slots.all_slots(held.source) if slot.database == held.source.info.dbname]
    known = slot_owners.sessions(held.source, held.pipeline, held.source_id, here)
    expected: dict[str, str | None] = {ours: "ours", part: "part", mine.slot: "session", theirs: "other"}
    assert {slot.name: slot.whose for slot in slot_owners.owned(here, ours, known)} == expected
    unsure = {slot.name: slot.whose for slot in slot_owners.owned(here, ours, None)}
    assert unsure == expected | {mine.slot: None, theirs: None}


@pytest.fixture
def command(held: Held, tmp_path: Path) -> Callable[..., Any]:
    def run(*arguments: str, **settings: object) -> Any:
        given = {"source_dsn": held.config.source, "database_dsn": held.config.database, "slot": held.config.slot}
        return run_command(*arguments, folder=tmp_path, **given | settings)

    return run


def test_slots_list_names_owners_with_and_without_the_pipeline_database(
    held: Held, command: Callable[..., Any]
) -> None:
    mine = held.session()
    (line,) = [line for line in command("slots", "list").stdout.splitlines() if line.startswith(mine.slot)]
    assert "a session of pgdeltastream" in line
    nowhere = psycopg.conninfo.make_conninfo(held.config.database, host="127.0.0.1", port="1")
    done = command("slots", "list", "--json", database_dsn=nowhere)
    found = {slot["name"]: slot["whose"] for slot in json.loads(done.stdout)["data"]}
    assert found[mine.slot] is None
    assert done.stderr == "the pipeline database does not answer, so slots of sessions cannot be recognized\n"


def test_a_deleted_slot_ends_its_session_and_no_other(held: Held, command: Callable[..., Any]) -> None:
    mine, other = held.session(), held.session()
    held.stream(mine.slot)
    refused = command("slots", "delete", mine.slot)
    assert refused.returncode == 2 and "its client is disconnected" in refused.stdout
    assert slots.find(held.source, mine.slot) is not None
    done = command("slots", "delete", mine.slot, "--yes")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, f'slot "{mine.slot}" deleted, and its session ended')
    assert slots.find(held.source, mine.slot) is None and slots.find(held.source, other.slot) is not None
    ended = store.find(held.pipeline, "pgdeltastream", mine.slot)
    assert ended is not None and (ended.state, ended.reason) == (
        "ended",
        "its slot was deleted by `pipeline slots delete`",
    )
    assert [each.slot for each in store.live(held.pipeline)] == [other.slot]


def test_a_catch_up_leaves_a_walsender_to_each_session_that_nobody_streams(held: Held) -> None:
    idle, streamed = held.session(), held.session()
    held.stream(streamed.slot)
    names = [idle.slot, streamed.slot]

    def looked() -> None:  # others' walsenders come and go meanwhile
        before, room = limits.read_capacity(held.source), limits.read_capacity(held.source, names)
        assert (room.kept_senders, room.free_senders) == (1, before.free_senders - 1)
        assert room.free_slots == before.free_slots

    eventually(looked)
    assert limits.read_capacity(held.source, []).kept_senders == 0


def adopted(held: Held) -> tuple[list[str], AdoptionReport]:
    """The questions to confirm, and the actions taken."""
    said: list[str] = []
    found = adopt(held.config, lambda gap: said.extend(losses.gap(gap)))
    assert found is not None
    return said, found


def test_a_new_epoch_ends_all_sessions_and_says_so(config: Config) -> None:
    replicate_first(config)
    with ExitStack() as stack:
        held = Held(stack, config)
        idle, streamed = held.session(), held.session()
        held.stream(streamed.slot)
        slots.drop(held.source, config.slot)
        said, found = adopted(held)
        both = [idle.slot, streamed.slot]
        assert any(
            f"the sessions of clients end, and their slots are deleted ({', '.join(both)})" in line for line in said
        )
        assert found.sessions == both
        assert f"2 sessions of clients ended: {', '.join(both)}" in found.lines()
        assert [slots.find(held.source, name) for name in both] == [None, None]
        ended = [store.find(held.pipeline, "pgdeltastream", name) for name in both]
        assert [each and each.reason for each in ended] == ["epoch 1 of the source began"] * 2


def test_at_another_cluster_slots_of_these_names_are_left_alone(config: Config) -> None:
    replicate_first(config)
    with ExitStack() as stack:
        held = Held(stack, config)
        mine = held.session()
        for table in ("sources", "sessions"):
            held.pipeline.execute(f"update pipeline.{table} set system_identifier = '7'".encode())
        _, found = adopted(held)
        assert found.sessions == [mine.slot] and store.live(held.pipeline) == []
        assert slots.find(held.source, mine.slot) is not None
