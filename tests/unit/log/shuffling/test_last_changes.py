"""Up to where changes may be in the log, as the one who writes it learns it."""

from __future__ import annotations

from typing import cast

import pytest

from pipeline.log import table as log
from pipeline.log.shuffling.last_changes import LastChanges
from pipeline.log.table import DEFAULT, EventsTable
from pipeline.postgres.connections import Connection

NAME = str(DEFAULT)


def look(changes: LastChanges, seq: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """When this is the newest seq."""

    def last_seq(_connection: Connection, _table: EventsTable) -> int:
        return seq

    monkeypatch.setattr(log, "last_seq", last_seq)
    return changes.read_last_seqs(cast(Connection, None), [DEFAULT])[NAME]


def test_at_the_first_look_everything_may_be_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    assert look(LastChanges(), 7, monkeypatch) == 7


def test_rows_of_ranges_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = LastChanges()
    look(changes, 7, monkeypatch)
    changes.range_moved(NAME, 20)
    assert look(changes, 20, monkeypatch) == 7
    changes.range_moved(NAME, 30)
    assert look(changes, 30, monkeypatch) == 7


def test_whatever_else_was_added_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = LastChanges()
    look(changes, 7, monkeypatch)
    changes.range_moved(NAME, 20)
    assert look(changes, 21, monkeypatch) == 21
    assert look(changes, 25, monkeypatch) == 25, "a range that was not said to be moved"


def test_a_table_that_was_not_looked_at_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = LastChanges()
    changes.range_moved(NAME, 20)
    assert look(changes, 20, monkeypatch) == 20
