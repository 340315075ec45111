"""A session that a killed server left behind as it created its slot is ended by the next start, and no other."""

from __future__ import annotations

import uuid
from contextlib import ExitStack

import psycopg

from pipeline.capture.replication import prepare
from pipeline.capture.source import slot_creation, slot_mark, slots
from pipeline.config import settings
from pipeline.postgres import connections


def test_a_start_ends_only_sessions_that_create_a_slot_for_it(
    source_dsn: str, database_dsn: str, slot_name: str
) -> None:
    config = settings.load(source_dsn=source_dsn, database_dsn=database_dsn, slot=slot_name)
    source, pipeline = prepare.connect(config, name="pipeline catalog")
    with ExitStack() as stack:
        for each in (source, pipeline):
            stack.enter_context(each)
        names = [
            slots.creator_name(slot_mark.own_id(pipeline)),
            slots.creator_name(str(uuid.uuid4())),
            "pipeline slots",
        ]
        [ours, *others] = [
            stack.enter_context(connections.connect(source_dsn, "source", name=str(name))) for name in names
        ]
        slot_creation.end_left_behind(source, pipeline)
        assert [_answers(each) for each in (ours, *others)] == [False, True, True]


def _answers(connection: connections.Connection) -> bool:
    try:
        connection.execute("select 1")
    except psycopg.OperationalError:
        return False
    return True
