"""A cluster whose executors are another user than the driver: a lake on a folder that both share by a group."""

from __future__ import annotations

import grp
import os
import shutil
import site
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.dataset as ds
import pytest

from tests.fixtures.postgres import Cluster
from tests.fixtures.standalone import Standalone, running
from tests.torture import export_kills
from tests.torture.export_kills import Exporter, Log

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
DRIVER, EXECUTORS, GROUP = "daemon", "games", "users"
PYTHON = Path("/usr/bin/python3.11")


def another(user: str, umask: int) -> dict[str, Any]:
    return {"user": user, "group": user, "extra_groups": [grp.getgrnam(GROUP).gr_gid], "umask": umask}


@contextmanager
def cluster_of_another_user(umask: int) -> Iterator[Standalone]:
    if os.getuid() != 0:
        pytest.skip("only root starts processes of another user: left out")
    given = {"PYTHONPATH": site.getsitepackages()[0], "PATH": os.environ["PATH"]}
    try:
        imports = [str(PYTHON), "-c", "import pyarrow, pyspark, adbc_driver_postgresql"]
        subprocess.run(imports, env=given, check=True, capture_output=True, **another(EXECUTORS, umask))
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"{PYTHON} cannot be used by another user: left out ({error})")
    more = {"PYTHONPATH": given["PYTHONPATH"], "PYSPARK_PYTHON": str(PYTHON), "HOME": "/"}
    with running(environment=more, **another(EXECUTORS, umask)) as made:
        yield made


@contextmanager
def shared(cluster: Cluster, mode: int) -> Iterator[Log]:
    with export_kills.log_on(cluster) as log, tempfile.TemporaryDirectory(prefix="wal-shared-") as folder:
        Path(folder).chmod(0o755)
        log.lake = Path(folder) / "lake"
        log.lake.mkdir()
        shutil.chown(log.lake, DRIVER, GROUP)
        log.lake.chmod(mode)
        log.dsn = cluster.tcp_dsn(str(psycopg.conninfo.conninfo_to_dict(log.dsn)["dbname"]))
        yield log


def exporter(log: Log, standalone: Standalone, umask: int) -> Exporter:
    return Exporter(
        log,
        master=standalone.master,
        environment=standalone.environment,
        python=str(PYTHON),
        **another(DRIVER, umask),
    )


def test_they_work_for_changes_and_states_where_the_group_may_write(cluster: Cluster) -> None:
    with cluster_of_another_user(0o002) as standalone, shared(cluster, 0o2775) as log:
        log.grow(3_000)
        run = exporter(log, standalone, 0o002)
        assert run.end() == 0, run.said[-1:]
        export_kills.require_exact(log)
        owners = {path.owner() for path in log.lake.glob("changes/*/date=*/*.parquet")}
        assert owners == {EXECUTORS}
        with psycopg.connect(log.dsn) as connection:  # what has no columns is folded by DataFrames
            connection.execute(
                "update sequin_events set commit_lsn = null where source_table_name = 'notes' and seq % 2 = 0"
            )
        log.grow(3_000)
        with psycopg.connect(log.dsn) as connection:
            connection.execute(
                "update sequin_events set commit_lsn = null where source_table_name = 'notes' and seq % 7 = 0"
            )
        run = exporter(log, standalone, 0o002)
        assert run.end() == 0, run.said[-1:]
        assert sorted(said["dataset"] for said in run.said if said["event"] == "state") == [
            f"public.{table}" for table in sorted(export_kills.TABLES)
        ]
        for table in export_kills.TABLES:
            assert ds.dataset(log.lake / f"current/public.{table}/latest").count_rows() == 2_000
        assert list((log.lake / "changes/public.notes").glob("schema=0/date=*/*.parquet"))


@pytest.mark.parametrize(
    ("mode", "umask", "reason"),
    [
        (0o755, 0o022, "cannot write there: Permission denied"),
        (0o2775, 0o022, "cannot write there: Permission denied"),
    ],
)
def test_where_it_may_not_a_run_says_so_before_its_first_range(
    cluster: Cluster, mode: int, umask: int, reason: str
) -> None:
    with cluster_of_another_user(0o002) as standalone, shared(cluster, mode) as log:
        log.grow(100)
        run = exporter(log, standalone, umask)
        assert run.end() == 1
        said = run.said[-1]["reason"]
        assert f"{log.lake}: executors on " in said and f" as user {EXECUTORS} {reason}; let both users be in" in said
        assert log.visible() == []
        with psycopg.connect(log.dsn) as connection:
            assert connection.execute("select count(*) from pipeline.exports").fetchone() == (0,)


def test_files_only_executors_can_move_are_named_before_the_first_range(cluster: Cluster) -> None:
    with cluster_of_another_user(0o022) as standalone, shared(cluster, 0o2775) as log:
        log.grow(100)
        run = exporter(log, standalone, 0o002)
        assert run.end() == 1
        said = run.said[-1]["reason"]
        assert f"as user {EXECUTORS} write there cannot be moved by user {DRIVER}" in said
        assert "Permission denied; let both users be in the folder's group" in said
        assert log.visible() == []
