"""`spark/export.py` where there is nothing to do for Spark."""

from __future__ import annotations

from pathlib import Path

import export
import pytest

from lake.folding import current
from lake.folding.current import PendingState
from lake.running.kept_session import KeptSession
from lake.storage.identity import Lake
from tests.fixtures.lake_ledger import EVENTS, lake_ledger


def test_what_is_to_be_folded_is_asked_once(database_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads the actions in all files that have come since the run before."""
    folder = tmp_path / "lake"
    with lake_ledger(database_dsn, folder) as book:
        book.publish("public.t1")
        book.update()
    outdated, asked = current.find_outdated, 0

    def counted(lake: Lake, latest_age: float) -> list[PendingState]:
        nonlocal asked
        asked += 1
        return outdated(lake, latest_age)

    monkeypatch.setattr(current, "find_outdated", counted)
    arguments = export._arguments(["--export-dir", str(folder), "--events-table", EVENTS])
    with KeptSession() as kept:
        export.run(database_dsn, arguments, kept)
        assert not kept.is_usable(), "no session was needed"
    assert asked == 1
