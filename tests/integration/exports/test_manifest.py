"""The manifest names every committed file once, whatever was interrupted, and a run writes only what is new of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from adbc_driver_postgresql import dbapi

from lake.changes import exporter, manifest
from lake.errors import UnfitTargetError
from lake.storage import replaced_files
from tests.fixtures.lake_ledger import Ledger, all_files, lake_ledger
from tests.fixtures.small_log import add_inserts, add_table


@pytest.fixture
def book(database_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    monkeypatch.setattr(manifest, "FULL", 3)
    with lake_ledger(database_dsn, tmp_path / "lake") as made:
        yield made


def require_all(book: Ledger) -> None:
    listed = book.listed()
    assert len(listed) == len(set(listed))
    assert set(listed) == book.committed()


def test_every_file_is_named_once_through_many_parts(book: Ledger) -> None:
    for number in range(10):
        book.publish("public.always", *(["public.now"] if number % 4 == 0 else []))
        book.update()
        require_all(book)
    newest = [path for path in all_files(book.root) if path.startswith("manifest/public.always/")]
    assert len(newest) == 10, "parts that were replaced stay for their readers"
    replaced_files.remove(book.lake, 0)
    require_all(book)
    assert len([path for path in all_files(book.root) if path.startswith("manifest/public.always/")]) == 4


def test_what_was_not_listed_before_a_crash_is_listed_after_it(book: Ledger) -> None:
    for _ in range(4):
        book.publish("public.a")
        book.publish("public.b")
        book.update()
        require_all(book)


@pytest.mark.parametrize("step", ["_SEAL", "_OPEN", "_STORE"])
def test_it_is_whole_after_a_crash_at_any_step(book: Ledger, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(8):
        book.publish("public.a")
        with monkeypatch.context() as patch:
            patch.setattr(manifest, step, "select 1 / 0 as broken from (select $1, $2) as two")
            if number % 2:
                with pytest.raises(dbapi.Error):
                    book.update()
        book.update()
        require_all(book)


def test_a_manifest_that_is_lost_is_written_again(book: Ledger) -> None:
    for _ in range(5):
        book.publish("public.a", "public.b")
        book.update()
    (book.root / "manifest.json").unlink()
    book.update()
    require_all(book)
    book.publish("public.a")
    book.update()
    require_all(book)


def test_a_run_writes_as_much_after_many_runs(book: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "FULL", 10)
    sizes = []
    for _ in range(40):
        before = set(all_files(book.root))
        book.publish("public.a")
        book.update()
        new = set(all_files(book.root)) - before
        sizes.append(sum((book.root / path).stat().st_size for path in new))
    assert max(sizes) < 1.2 * max(sizes[:10])
    require_all(book)


def test_a_lake_that_is_ahead_of_a_restored_log_takes_no_export(book: Ledger) -> None:
    for _ in range(2):
        book.publish("public.a")
    book.update()
    manifest.LakeManifest(book.lake).require_same_log()
    book.lake.ledger.execute("delete from pipeline.export_files where first_seq > 100")
    book.lake.ledger.execute("delete from pipeline.exports where upto_seq > 100")
    with pytest.raises(
        UnfitTargetError, match=r"ahead of the log: its manifest lists events up to seq 200.*begin a new lake"
    ):
        exporter.resume(book.lake)


def test_a_lake_knows_a_log_that_has_another_event_in_its_place(book: Ledger, database_dsn: str) -> None:
    with psycopg.connect(database_dsn, autocommit=True) as log:
        add_table(log, "a", 1001)
        add_inserts(log, 100, "a", 1001)
        book.publish("public.a")
        book.update()
        exporter.resume(book.lake)
        log.execute("update sequin_events set committed_at = committed_at - interval '1 ms' where seq = 100")
        with pytest.raises(UnfitTargetError, match="the log has another event at seq 100"):
            exporter.resume(book.lake)
        log.execute("delete from sequin_events where seq <= 100")  # as retention does
        manifest.LakeManifest(book.lake).require_same_log()
