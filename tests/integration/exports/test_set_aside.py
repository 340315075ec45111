"""What a lake has of events that a restored log lost is set aside: readers see each event of the log once, no other."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from lake import ledger
from lake.errors import UnfitTargetError
from lake.states.folders import StateFolders
from lake.storage import days, replaced_files
from tests.fixtures import lake_ledger
from tests.fixtures.iceberg_lake import IcebergLake
from tests.fixtures.lake_ledger import all_files
from tests.fixtures.lake_readers import by_glob, by_manifest, listed
from tests.fixtures.postgres import Cluster
from tests.fixtures.restorable_lake import (
    COLUMNS,
    JUMP,
    Restorable,
    aside,
    change,
    compact,
    require,
    require_iceberg,
    resume,
)
from tests.fixtures.server import ROOT


@pytest.fixture
def restorable(cluster: Cluster, database_dsn: str, tmp_path: Path) -> Iterator[Restorable]:
    with ExitStack() as stack:
        yield Restorable(cluster, database_dsn, tmp_path / "lake", stack)


def test_events_that_the_log_lost_are_set_aside(restorable: Restorable, capfd: pytest.CaptureFixture[str]) -> None:
    change(restorable.lake, "shop.orders", "shop.lines", runs=2)
    restorable.lake.state("shop.orders", COLUMNS, {"id": 1})
    restorable.lake.publish()
    restorable.dump()
    lost = restorable.lake
    change(lost, "shop.orders", day="2026-11-26")
    change(lost, "shop.gone", "shop.orders")
    lost.state("shop.orders", COLUMNS, {"id": 1}, {"id": 2})
    lost.state("shop.gone", COLUMNS, {"id": 3}, oid=1099)
    for dataset in ("shop.orders", "shop.gone"):
        lost.show(dataset)
    lost.publish()
    before = {
        path: (lost.root / path).read_bytes() for path in all_files(lost.root) if path.startswith("files/changes/")
    }
    lake = restorable.restore(8)
    resume(lake)
    require(lake, list(range(1, 9)))
    moved = {path for path in aside(lake) if path.startswith("files/changes/")}
    assert {path: (lake.root / f".set-aside/{JUMP}/{path}").read_bytes() for path in moved} == {
        path: content for path, content in before.items() if path not in lake.ledger.committed()
    }
    assert os.listdir(lake.root / "current/shop.orders/latest") == [f"bucket-00-{8:020d}.parquet"]
    assert [path.name for path in lake.root.glob("current/*")] == ["shop.orders"]
    assert '{"event": "set_aside", "jump": 1000000, "files": 5, ' in capfd.readouterr().out
    lake.publish()
    require_iceberg(lake, list(range(1, 9)))
    assert [row["id"] for row in lake.read("current.shop.orders")] == [1]

    lake.upto = JUMP - 1
    change(lake, "shop.orders")
    lake.publish()
    resume(lake)
    require(lake, [*range(1, 9), JUMP, JUMP + 1])
    require_iceberg(lake, [*range(1, 9), JUMP, JUMP + 1])
    assert "set_aside" not in capfd.readouterr().out


def test_a_compaction_that_the_ledger_lost_is_set_aside(restorable: Restorable) -> None:
    change(restorable.lake, "shop.orders", "shop.lines", runs=3)
    restorable.dump()
    assert compact(restorable.lake) == 6
    lake = restorable.restore(12)
    assert compact(lake) == 6, "it sets aside what it would write again under the same names"
    assert by_glob(lake.root) == by_manifest(lake.root) == list(range(1, 13))
    assert sum("-m" in path for path in aside(lake) if path.startswith("files/changes/")) == 2
    replaced_files.remove(lake.ledger.lake, 0)
    require(lake, list(range(1, 13)))
    assert len(list(lake.root.glob("changes/*/date=*/*.parquet"))) == 2
    assert not list(lake.root.glob("days/*"))


def test_nothing_is_written_before_the_log_has_jumped(restorable: Restorable) -> None:
    """Although the ledger knows all events that the lake has, it does not know of their merged files."""
    change(restorable.lake, "shop.orders", runs=3)
    restorable.dump()
    assert compact(restorable.lake) == 3
    lake, before = restorable.restore(6, jumps=False), all_files(restorable.root)
    for act in (resume, compact):
        with pytest.raises(UnfitTargetError, match="its log has not jumped since then; start the server"):
            act(lake)
    assert all_files(lake.root) == before
    restorable.jump(6)
    assert compact(lake) == 3
    replaced_files.remove(lake.ledger.lake, 0)
    require(lake, list(range(1, 7)))


def test_a_lake_whose_listed_files_were_merged_and_removed_stops(restorable: Restorable) -> None:
    change(restorable.lake, "shop.orders", runs=3)
    restorable.dump()
    compact(restorable.lake)
    replaced_files.remove(restorable.lake.ledger.lake, 0)
    before = all_files(restorable.root)
    lake = restorable.restore(6)
    with pytest.raises(UnfitTargetError, match=r"lacks files that the ledger lists, such as .*begin a new lake"):
        resume(lake)
    assert all_files(lake.root) == before


def test_events_that_the_log_still_has_are_exported_again(restorable: Restorable) -> None:
    """The log was exported further than at the dump: the same seqs come again, in files of the same names."""
    change(restorable.lake, "shop.orders")
    restorable.dump()
    change(restorable.lake, "shop.orders", runs=2)
    lake = restorable.restore(2)
    restorable.jump(6, JUMP + 1)
    resume(lake)
    require(lake, [1, 2])
    change(lake, "shop.orders", runs=2)
    require(lake, list(range(1, 7)))
    assert len([path for path in aside(lake, JUMP + 1) if path.startswith("files/changes/")]) == 2


def test_a_version_of_a_state_that_was_removed_is_folded_again(restorable: Restorable) -> None:
    change(restorable.lake, "shop.orders", "shop.lines")
    restorable.lake.state("shop.orders", COLUMNS, {"id": 1})
    change(restorable.lake, "shop.orders")
    restorable.lake.state("shop.orders", COLUMNS, {"id": 2})
    restorable.lake.state("shop.lines", COLUMNS, {"id": 2}, oid=1002)
    restorable.dump()
    lost = restorable.lake
    change(lost, "shop.orders", "shop.lines")
    lost.state("shop.orders", COLUMNS, {"id": 3})
    for dataset, seq in (("shop.orders", 6), ("shop.lines", 6)):
        StateFolders(lost.root, dataset).remove(seq)
    lake = restorable.restore(6)
    resume(lake)
    assert os.listdir(lake.root / "current/shop.orders/latest") == [f"bucket-00-{4:020d}.parquet"]
    assert not (lake.root / "current/shop.lines").exists()
    rows = lake.ledger.lake.ledger.rows
    assert rows("select seq, superseded_at::text from pipeline.export_states") == [{"seq": 4, "superseded_at": None}]
    assert rows("select folded_upto from pipeline.lakes") == [{"folded_upto": None}]
    named = rows("select dataset from pipeline.export_tables where dataset is not null")
    assert named == [{"dataset": "shop.orders"}]


def test_a_jump_without_a_loss_changes_nothing(restorable: Restorable, capfd: pytest.CaptureFixture[str]) -> None:
    lake = restorable.lake
    change(lake, "shop.orders", runs=3)
    lake.state("shop.orders", COLUMNS, {"id": 1})
    lake.publish()
    resume(lake)
    before = {path: (lake.root / path).read_bytes() for path in all_files(lake.root)}
    pointers = {name: table.metadata_location for name, table in lake.tables().items()}
    restorable.jump(lake.upto)
    resume(lake)
    del before["manifest.json"]
    assert {path: (lake.root / path).read_bytes() for path in all_files(lake.root) if path in before} == before
    assert len(all_files(lake.root)) == len(before) + 1
    assert {name: table.metadata_location for name, table in lake.tables().items()} == pointers
    assert "set_aside" not in capfd.readouterr().out


def test_a_lake_that_is_ahead_of_the_jumps_of_the_log_stops(restorable: Restorable) -> None:
    change(restorable.lake, "shop.orders")
    restorable.dump()
    change(restorable.lake, "shop.orders", runs=2)
    restorable.jump(6, 7)
    change(restorable.lake, "shop.orders")
    lake = restorable.restore(2, jumps=False)
    restorable.store_place()
    for after, reason in ((None, "a jump of the log to seq 7"), (5, "a jump of the log to seq 7"), (8, "up to seq 8")):
        if after:
            restorable.jump(2, after)
        with pytest.raises(UnfitTargetError, match=f"ahead of the log: .*{reason}.*begin a new lake"):
            resume(lake)
    restorable.jump(2, 9)
    resume(lake)
    require(lake, [1, 2])


def test_a_lake_that_was_made_after_the_dump_is_begun_again(restorable: Restorable, tmp_path: Path) -> None:
    restorable.dump()
    lost = restorable.lake.another(tmp_path / "later")
    later = replace(restorable.lake, ledger=lake_ledger.Ledger(lost))
    change(later, "shop.orders", runs=2)
    restored = restorable.restore(0, jumps=False)
    with pytest.raises(UnfitTargetError, match="its log has not jumped"):
        restored.another(tmp_path / "later")
    restorable.jump(0)
    lake = replace(restored, ledger=lake_ledger.Ledger(restored.another(tmp_path / "later")), upto=JUMP)
    assert lake.ledger.lake.id == lost.id
    resume(lake)
    assert (by_glob(lake.root), by_manifest(lake.root), len(listed(lake.root))) == ([], [], 0)
    change(lake, "shop.orders")
    require(lake, [JUMP + 1, JUMP + 2])


STEPS: tuple[tuple[Any, str], ...] = (
    *((os, name) for name in ("rename", "replace", "link")),
    *((Path, name) for name in ("unlink", "symlink_to", "write_bytes")),
    (days, "exchange"),
    (ledger.LakeLedger, "execute"),
)


def crashing(patch: pytest.MonkeyPatch, steps: int, crash: Callable[[], Any]) -> None:
    """After so many things that it does to the disk and to the ledger, the process ends."""
    left = steps

    def counted(act: Callable[..., Any]) -> Callable[..., Any]:
        def step(*values: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                crash()
            return act(*values, **named)

        return step

    for owner, name in STEPS:
        patch.setattr(owner, name, counted(getattr(owner, name)))


def lose(restorable: Restorable) -> IcebergLake:
    """A restored lake, which has lost files, merged ones, versions of states and Iceberg tables."""
    change(restorable.lake, "shop.orders", "shop.lines", runs=2)
    restorable.lake.state("shop.orders", COLUMNS, {"id": 1})
    restorable.lake.publish()
    restorable.dump()
    lost = restorable.lake
    compact(lost)
    change(lost, "shop.orders", "shop.gone", "shop.lines", runs=2, day="2026-11-26")
    for dataset, oid in (("shop.orders", 1001), ("shop.gone", 1099)):
        lost.state(dataset, COLUMNS, {"id": 3}, oid=oid)
        lost.show(dataset)
    lost.publish()
    return restorable.restore(8)


def require_settled(lake: IcebergLake) -> None:
    require(lake, list(range(1, 9)))
    assert len([path for path in aside(lake) if path.startswith("files/changes/")]) == 8
    assert os.listdir(lake.root / "current/shop.orders/latest") == [f"bucket-00-{8:020d}.parquet"]
    lake.publish()
    require_iceberg(lake, list(range(1, 9)))
    change(lake, "shop.orders")
    require(lake, list(range(1, 11)))


def test_a_crash_at_any_step_is_finished_by_the_next_run(
    restorable: Restorable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run gets a step further than the one before."""

    def crash() -> None:
        raise KeyboardInterrupt

    lake = lose(restorable)
    for steps in count():
        with monkeypatch.context() as patch:
            crashing(patch, steps, crash)
            try:
                resume(lake)
                break
            except KeyboardInterrupt:
                continue
    assert steps > 10
    require_settled(lake)


@pytest.mark.long
def test_what_a_killed_run_has_not_set_aside_the_next_one_does(restorable: Restorable) -> None:
    lake = lose(restorable)
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'spark'}"}
    for steps in count(1, 4):
        victim = "tests.integration.exports.aside_victim", lake.dsn, str(lake.root), str(steps)
        status = subprocess.run([sys.executable, "-m", *victim], cwd=ROOT, env=environment, check=False).returncode
        if status == 0:
            break
        assert status == -9
    require_settled(lake)
