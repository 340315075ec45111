"""A slot that no longer holds all that we have not stored: a clear stop that names the gap, and a way on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from pipeline.capture.source import slots
from pipeline.config import settings
from pipeline.config.settings import Config
from pipeline.errors import HistoryDivergedError, PipelineError, SlotLostError, SourceChangedError
from pipeline.operate.repair import adopt
from pipeline.postgres import role_locks
from pipeline.postgres.embedded import EmbeddedServer
from tests.fixtures.data_directories import prepare
from tests.fixtures.postgres import SETTINGS, Cluster, free_port
from tests.fixtures.replicating import Replicating, catch_up, events, refuse, replicate_first, run
from tests.fixtures.server import run_at_terminal, run_command
from tests.fixtures.shuffling import jumps

GAP = r"changes from [0-9A-F]+/[0-9A-F]+ to [0-9A-F]+/[0-9A-F]+ are not in the log; `pipeline sources adopt` continues"


@pytest.fixture
def config(source_dsn: str, database_dsn: str, slot_name: str) -> Config:
    """Replicated once: the log has 1."""
    made = settings.load(source_dsn=source_dsn, database_dsn=database_dsn, slot=slot_name)
    replicate_first(made)
    run(made, "insert into t values (2)")
    return made


def drop(config: Config) -> None:
    run(config, f"select pg_drop_replication_slot('{config.slot}')")


def recreate(config: Config) -> None:
    drop(config)
    run(config, f"select pg_create_logical_replication_slot('{config.slot}', 'pgoutput')")


def advance(config: Config) -> None:
    run(config, f"select pg_replication_slot_advance('{config.slot}', pg_current_wal_lsn())")


CONFIRMED = r"was confirmed up to .* by another program, or dropped and recreated, but we have stored up to .*"
GONE = r"does not exist, but we have stored up to .* it was dropped, or was not copied to this server"


@pytest.mark.parametrize(
    ("lose", "said", "kept"), [(drop, GONE, False), (recreate, CONFIRMED, True), (advance, CONFIRMED, True)]
)
def test_a_slot_that_was_lost(config: Config, lose: Callable[[Config], None], said: str, kept: bool):
    lose(config)
    missing = GAP if kept else f"(?:{GAP}|the log has everything up to where the source's WAL ends; .* new epoch)"
    with pytest.raises(SlotLostError, match=rf'^slot "{config.slot}" {said}.*{missing}'):
        refuse(config)
    adopted = adopt.adopt(config)
    assert adopted is not None
    assert (adopted.epoch, adopted.kept_slot) == (1, kept)
    assert adopted.starts_at > adopted.left_at
    run(config, "insert into t values (3)")
    catch_up(config, [(0, "1"), (1, "3")])
    assert ["but we have stored up to" in reason for reason in jumps(config.database)] == [True]


def test_a_slot_that_lost_its_wal(database_dsn: str, slot_name: str, server_directory: Path):
    limits = {**SETTINGS, "max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}
    server = EmbeddedServer(server_directory, settings=limits, port=free_port())
    prepare(server_directory, server.bin_dir)
    server.start()
    config = settings.load(source_dsn=server.tcp_dsn("postgres"), database_dsn=database_dsn, slot=slot_name)
    run(config, "create table t (id int primary key)")
    catch_up(config, [])
    for _ in range(4):
        run(config, "select pg_logical_emit_message(false, 'other', 'x')", "select pg_switch_wal()")
    run(config, "checkpoint")
    with pytest.raises(
        SlotLostError, match=rf'^slot "{slot_name}" has been invalidated: the source removed WAL .*{GAP}'
    ):
        refuse(config)
    adopted = adopt.adopt(config)
    assert adopted is not None
    assert not adopted.kept_slot
    run(config, "insert into t values (3)")
    catch_up(config, [(1, "3")])


def test_another_cluster(config: Config, clusters: Callable[[int], Cluster]):
    with clusters(16).database("other") as dsn:
        other = settings.load(source_dsn=dsn, database_dsn=config.database, slot=config.slot)
        run(other, "create table t (id int primary key)")
        with pytest.raises(
            HistoryDivergedError, match=r"of cluster \d+, but positions are stored for .* of \d+.*adopt"
        ):
            refuse(other)
        assert adopt.adopt(other) is not None
        run(other, "insert into t values (3)")
        catch_up(other, [(0, "1"), (1, "3")])


@pytest.mark.parametrize("setting", ["slot", "publication"])
def test_settings_that_are_not_those_of_the_positions(config: Config, setting: str):
    other = config.model_copy(update={setting: f"{config.slot}_other"})
    with pytest.raises(
        SourceChangedError, match=rf'positions are stored for {setting} ".*set PIPELINE_{setting.upper()}='
    ):
        refuse(other)
    adopted = adopt.adopt(other)
    assert adopted is not None
    run(config, "insert into t values (3)")
    catch_up(other, [(0, "1"), (1, "3")])


def test_nothing_is_adopted_where_positions_can_go_on(config: Config):
    assert adopt.adopt(config) is None
    catch_up(config, [(0, "1"), (0, "2")])
    assert jumps(config.database) == []


def test_a_log_that_was_restored_jumps_on_request(config: Config):
    assert adopt.adopt(config, restored=True) is None
    catch_up(config, [(0, "1"), (0, "2")])
    assert jumps(config.database) == [adopt.RESTORED]


def test_nothing_is_adopted_while_a_server_runs(config: Config):
    drop(config)
    with psycopg.connect(config.database, autocommit=True) as server:
        assert role_locks.try_acquire(server, "shuffle")
        with pytest.raises(PipelineError, match=r"^a server is running \(shuffle is held by .*\); stop it first$"):
            adopt.adopt(config)
    assert events(config) == [(0, "1")]
    assert adopt.adopt(config) is not None


def test_a_walsender_that_stayed_behind_is_gone_when_its_slot_is_read(config: Config):
    with psycopg.connect(config.source, autocommit=True) as source, Replicating(config) as replicating:
        replicating.wait_for([(0, "1"), (0, "2")])
        before = slots.find(source, config.slot)
        assert before is not None and before.active_pid is not None
        slots.end_walsender(source, before)
        after = slots.find(source, config.slot)
        assert after is not None and after.active_pid is None
        replicating.ended()


def test_the_commands(config: Config, tmp_path: Path):
    given = {"source_dsn": config.source, "database_dsn": config.database, "slot": config.slot}
    same = run_command("sources", "adopt", folder=tmp_path, **given)
    assert (same.returncode, same.stdout) == (0, "the stored positions are valid at this source; nothing was changed\n")
    drop(config)
    refused = run_command("sources", "adopt", folder=tmp_path, **given)
    assert (refused.returncode, refused.stderr) == (
        2,
        "pipeline: standard input is not a terminal, so it cannot be confirmed; nothing was changed; add --yes\n",
    )
    reason, staged, lost, option = refused.stdout.splitlines()
    assert reason.startswith(f'slot "{config.slot}" does not exist, but ')
    assert re.fullmatch(r"the log has all changes up to \S+, and its newest event was committed .* UTC", staged)
    assert re.fullmatch(
        r"the source has written .*B of WAL since then; the log will lack what the slot cannot send", lost
    )
    assert option.startswith("with --reread, the next server also compares ")
    other = run_at_terminal("no", "sources", "adopt", folder=tmp_path, **given)
    assert other.returncode == 1 and "nothing was changed" in other.stderr
    adopted = run_command("sources", "adopt", "--yes", folder=tmp_path, **given)
    assert adopted.returncode == 0, adopted
    assert "epoch 1 begins at " in adopted.stdout
    listed = run_command("sources", "list", "--json", folder=tmp_path, **given)
    (source,) = json.loads(listed.stdout)["data"]
    assert (source["epoch"], source["slot"], source["timeline"]) == (1, config.slot, 1)
    assert source["publications"] == ["pipeline", "pipeline_keyless"]
    assert source["since"]
