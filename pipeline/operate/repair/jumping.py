"""Lets the log jump on request: a reader may have seen seqs of a log that was lost."""

from __future__ import annotations

from functools import partial

from pipeline.config.settings import Config
from pipeline.log import jumps
from pipeline.log.table import EventsTable
from pipeline.operate.preflight import legacy_log
from pipeline.postgres.connections import Connection

RESTORED = "`pipeline sources adopt --restored` said that the log was restored"


def jump(config: Config, source: Connection, pipeline: Connection, reason: str) -> None:
    """Let every events table jump, also one that a server has not made yet. No server may be running."""
    legacy_log.ensure(config, pipeline)
    named = [EventsTable.parse(name) for name in config.events_tables]
    jumps.jump(pipeline, named, partial(jumps.clock, source), reason)
