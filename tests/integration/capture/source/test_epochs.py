"""A source whose history is not the one we staged: a clear stop; a new epoch, begun on purpose, doubles nothing."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import SecretStr

from pipeline.config import settings
from pipeline.config.settings import Config
from pipeline.errors import DatabaseUnavailableError, HistoryDivergedError, SlotLostError, SourceUnfitError
from pipeline.log.staging import progress
from pipeline.operate.preflight import check
from pipeline.operate.repair import adopt
from pipeline.postgres import reading_session
from pipeline.postgres.embedded import EmbeddedServer
from tests.fixtures.data_directories import prepare
from tests.fixtures.postgres import SETTINGS, Cluster, bin_dir, free_port, short_directory, unique
from tests.fixtures.replicating import catch_up, events, refuse, replicate_first
from tests.fixtures.waiting import eventually

MANY = 400
LOST = [(0, str(number)) for number in (1, 2, *range(1000, 1000 + MANY))]


@pytest.fixture(scope="module")
def blank(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """`blank(18)`: the data directory of a server that was just set up, to copy."""
    made: dict[int, Path] = {}

    def make(major: int) -> Path:
        if (binaries := bin_dir(major)) is None:
            pytest.skip(f"PostgreSQL {major} is not installed")
        if major not in made:
            folder = tmp_path_factory.mktemp("blank") / str(major)
            prepare(folder, binaries)
            made[major] = folder / "data"
        return made[major]

    return make


@pytest.fixture
def major() -> int:
    """The source's version; a test that wants another is parametrized with it."""
    return 18


def started(directory: Path, major: int, data: Path) -> EmbeddedServer:
    """A server with a copy of this data directory."""
    directory.mkdir(mode=0o700)
    shutil.copytree(data, directory / "data", symlinks=True)
    server = EmbeddedServer(directory, bin_dir=bin_dir(major), settings=SETTINGS, port=free_port())
    server.start()
    return server


@pytest.fixture
def primary(major: int, blank: Callable[[int], Path], server_directory: Path) -> EmbeddedServer:
    """A source of the test's own; its disk is in the test's hands."""
    return started(server_directory, major, blank(major))


@pytest.fixture
def config(primary: EmbeddedServer, database_dsn: str, slot_name: str) -> Config:
    made = of(primary, database_dsn, slot_name)
    replicate_first(made)
    return made


def of(server: EmbeddedServer, database_dsn: str, slot_name: str) -> Config:
    return settings.load(source_dsn=server.tcp_dsn("postgres"), database_dsn=database_dsn, slot=slot_name)


def run(server: EmbeddedServer, query: LiteralString) -> None:
    with psycopg.connect(server.tcp_dsn("postgres"), autocommit=True) as connection:
        connection.execute(query)


def insert(server: EmbeddedServer, *numbers: int) -> None:
    """A transaction each."""
    with psycopg.connect(server.tcp_dsn("postgres"), autocommit=True) as connection:
        for number in numbers:
            connection.execute("insert into t values (%s)", [number])


@dataclass(frozen=True)
class SavedLoss:
    """A source's data directory as it was restored, and the name of the database with the log that has more."""

    data: Path
    log: str
    slot: str


@pytest.fixture(scope="module")
def saved_loss(cluster: Cluster, blank: Callable[[int], Path]) -> Iterator[Callable[[int], SavedLoss]]:
    """`saved_loss(18)`: made once, for each test to copy."""
    with ExitStack() as stack:

        @cache
        def make(major: int) -> SavedLoss:
            directory = stack.enter_context(short_directory())
            dsn, slot = stack.enter_context(cluster.database("events", cluster.template)), unique("slot")
            primary, saved = started(directory, major, blank(major)), directory.with_name("saved")
            config = of(primary, dsn, slot)
            replicate_first(config)
            insert(primary, 2)
            primary.stop()
            shutil.copytree(primary.data, saved, symlinks=True)
            primary.start()
            insert(primary, *range(1000, 1000 + MANY))
            catch_up(config, LOST)
            primary.stop("immediate")
            return SavedLoss(saved, str(conninfo_to_dict(dsn)["dbname"]), slot)

        yield make


@pytest.fixture
def lost(
    major: int, saved_loss: Callable[[int], SavedLoss], cluster: Cluster, server_directory: Path
) -> Iterator[tuple[EmbeddedServer, Config]]:
    """The log has 1, 2 and many more; the source's disk was restored to when 2 was there and not replicated yet."""
    saved = saved_loss(major)
    with cluster.database("events", saved.log) as dsn:
        source = started(server_directory, major, saved.data)
        yield source, of(source, dsn, saved.slot)


def test_a_restored_source_that_has_not_reached_our_position(
    lost: tuple[EmbeddedServer, Config], monkeypatch: pytest.MonkeyPatch
):
    restored, config = lost
    insert(restored, 3)
    with pytest.raises(
        HistoryDivergedError, match=r"has written WAL only up to .*/.*, but we have stored up to .*/.*adopt"
    ):
        refuse(config)
    with monkeypatch.context() as patched, pytest.raises(ZeroDivisionError):
        patched.setattr(progress, "restart", lambda *_: 1 / 0)
        adopt.adopt(config)
    with pytest.raises(HistoryDivergedError):
        refuse(config)
    adopted = adopt.adopt(config)
    assert adopted is not None
    assert adopted.kept_slot
    old = "select count(*) > 1, count(first_seen_at) from pipeline.seen_tables where epoch = 1"
    with psycopg.connect(config.database) as log:
        assert log.execute(old).fetchone() == (True, 0), "no table is new in the epoch that begins"
    insert(restored, 4)
    catch_up(config, [*LOST, (1, "3"), (1, "4")])


@pytest.mark.parametrize("major", [18, 15])
def test_a_restored_source_that_has_written_past_our_position(lost: tuple[EmbeddedServer, Config]):
    restored, config = lost
    new = range(5000, 5000 + 2 * MANY)
    insert(restored, *new)
    confirmed = slot_position(restored, config)
    with pytest.raises(
        HistoryDivergedError, match=r"^we have stored up to .* has written another history since; .*adopt"
    ):
        refuse(config)
    assert slot_position(restored, config) == confirmed
    assert events(config) == LOST
    with psycopg.connect(config.database) as pipeline:
        pipeline.execute("select setval('public.sequin_events_seq_seq', 1)")  # as in a copy without sequences
    adopted = adopt.adopt(config)
    assert adopted is not None
    catch_up(config, [*LOST, *((1, str(number)) for number in new)])
    with psycopg.connect(config.database) as pipeline:
        assert pipeline.execute("select max(after_seq) from pipeline.epochs").fetchone() == (len(LOST),)
    assert adopt.adopt(config) is None


def slot_position(server: EmbeddedServer, config: Config) -> str:
    with psycopg.connect(server.tcp_dsn("postgres")) as connection:
        row = connection.execute(
            "select confirmed_flush_lsn::text from pg_replication_slots where slot_name = %s", [config.slot]
        ).fetchone()
    assert row is not None
    return str(row[0])


def test_a_second_restore_doubles_nothing_of_the_epochs_before(lost: tuple[EmbeddedServer, Config]):
    restored, config = lost
    saved = restored.directory.with_name("again")
    restored.stop()
    shutil.copytree(restored.data, saved, symlinks=True)
    restored.start()
    assert adopt.adopt(config) is not None
    insert(restored, *range(1000, 1000 + MANY))
    second = [*LOST, *((1, str(number)) for number in range(1000, 1000 + MANY))]
    catch_up(config, second)
    restored.stop()
    shutil.rmtree(restored.data)
    saved.rename(restored.data)
    restored.start()
    adopted = adopt.adopt(config)
    assert adopted is not None
    insert(restored, 3)
    catch_up(config, [*second, (2, "3")])


@pytest.fixture
def standby(primary: EmbeddedServer, config: Config) -> EmbeddedServer:
    """It streams from the primary; the log has 1."""
    copy = EmbeddedServer(
        primary.directory.with_name("standby"), bin_dir=primary.bin_dir, settings=SETTINGS, port=free_port()
    )
    copy.directory.mkdir(mode=0o700)
    command = [str(primary.bin_dir / "pg_basebackup"), "-d", primary.tcp_dsn("postgres"), "-D", str(copy.data)]
    subprocess.run([*command, "-R", "-c", "fast", "-X", "stream"], check=True, capture_output=True)
    copy.start()
    return copy


def test_a_standby_is_no_source(
    standby: EmbeddedServer, config: Config, cluster: Cluster, database_dsn: str, slot_name: str
):
    moved = of(standby, database_dsn, slot_name)
    with pytest.raises(DatabaseUnavailableError, match="is a standby; point PIPELINE_SOURCE_DSN at its primary"):
        refuse(moved)
    with cluster.database("events", cluster.template) as new, pytest.raises(SourceUnfitError, match="is a standby; "):
        refuse(of(standby, new, slot_name))
    with pytest.raises(SourceUnfitError, match="is a standby"):
        adopt.adopt(moved)
    found = [each for each in check.run(moved) if each.level == "error" and each.name != "port"]
    errors = [(each.name, each.text, each.remedy) for each in found]
    assert errors == [("source", "is a standby", "set PIPELINE_SOURCE_DSN to its primary")]
    for other in (moved.source, make_conninfo(config.source, dbname="template1")):
        reading = config.model_copy(update={"source_read_dsn": SecretStr(other)})
        with pytest.raises(SourceUnfitError, match="is not the database of PIPELINE_SOURCE_DSN: another database, or "):
            reading_session.connect(reading, name="test")


def promote(server: EmbeddedServer) -> None:
    run(server, "select pg_promote()")


def test_a_promoted_standby_that_lost_its_tail(
    primary: EmbeddedServer, standby: EmbeddedServer, config: Config, database_dsn: str, slot_name: str
):
    standby.stop()
    insert(primary, 2)
    catch_up(config, LOST[:2])
    primary.stop()
    standby.start()
    promote(standby)
    moved = of(standby, database_dsn, slot_name)
    with pytest.raises(HistoryDivergedError, match=r"forked into timeline 2 at .*/.*, before our position .*/.*adopt"):
        refuse(moved)
    adopted = adopt.adopt(moved)
    assert adopted is not None
    assert not adopted.kept_slot
    insert(standby, 3)
    catch_up(moved, [*LOST[:2], (1, "3")])


def test_a_promoted_standby_that_has_everything_but_the_slot(
    primary: EmbeddedServer, standby: EmbeddedServer, config: Config, database_dsn: str, slot_name: str
):
    primary.stop()
    promote(standby)
    moved = of(standby, database_dsn, slot_name)
    with pytest.raises(SlotLostError, match=r"was not copied to this server; changes from .*/.* to .*/.* are not"):
        refuse(moved)


def test_a_promoted_standby_that_has_everything_goes_on_in_its_timeline(
    primary: EmbeddedServer, standby: EmbeddedServer, config: Config, database_dsn: str, slot_name: str
):
    with psycopg.connect(standby.tcp_dsn("postgres"), autocommit=True) as copy:
        make_slot(primary, copy, slot_name)
    insert(primary, 2)
    catch_up(config, LOST[:2])
    primary.stop()
    promote(standby)
    insert(standby, 3)
    catch_up(of(standby, database_dsn, slot_name), [*LOST[:2], (0, "3")])


def make_slot(primary: EmbeddedServer, standby: psycopg.Connection, name: str) -> None:
    """A slot on the standby, as a failover slot would be; to be made it waits for what the primary writes next."""
    with ThreadPoolExecutor(1) as pool:
        made = pool.submit(standby.execute, "select pg_create_logical_replication_slot(%s, 'pgoutput')", [name])

        def nudge() -> bool:
            run(primary, "select pg_log_standby_snapshot()")
            return made.done()

        eventually(nudge)
        made.result()
