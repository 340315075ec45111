"""A source that writes no WAL has nothing to say; that is no reason to give it up."""

from __future__ import annotations

import threading

import pytest

from pipeline.capture.replication import progress_reporter, stream
from pipeline.config import settings
from tests.fixtures.postgres import temporary_server
from tests.fixtures.replicating import Replicating

TIMEOUT = 3
"""Seconds. A source that is not asked counts as lost after 1.5 times as long."""


def test_a_source_without_any_wal_is_asked_for_a_word(database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (stream, progress_reporter):
        monkeypatch.setattr(module, "SENDER_TIMEOUT", TIMEOUT)
    monkeypatch.setattr(stream, "REQUEST_REPLY_SECONDS", TIMEOUT / 3)
    with temporary_server(18) as source:
        source.create("source")
        config = settings.load(source_dsn=source.dsn("source"), database_dsn=database_dsn, slot="silent")
        with Replicating(config) as replicating:
            replicating.wait_until_streaming()
            threading.Event().wait(2 * TIMEOUT)
            replicating.require_alive()
