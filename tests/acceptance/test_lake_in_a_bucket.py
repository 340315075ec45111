"""`pipeline export run` to a bucket as users run it, killed in its uploads; what it says, and what it does not."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.dataset as ds
import pytest

from tests.fixtures.object_store import BUCKET, CREDENTIALS, ObjectStore, object_store
from tests.fixtures.server import COMMAND, COMMAND_TIMEOUT, environment, run_command
from tests.fixtures.small_log import add_inserts, small_log
from tests.fixtures.waiting import eventually

KILLS = 20
SETTINGS: dict[str, Any] = {
    "export_dir": f"s3://{BUCKET}/lake",
    "spark_master": "local[2]",
    "export_formats": "parquet,iceberg",
}


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with object_store() as made:
        monkeypatch.setenv("AWS_ENDPOINT_URL", made.endpoint)
        yield made


def manifest(store: ObjectStore, path: str) -> dict[str, Any]:
    with store.files.open_input_file(f"{BUCKET}/lake/{path}") as stream:
        found: dict[str, Any] = json.loads(stream.read())
        return found


def seqs(store: ObjectStore) -> list[int]:
    """What a reader of the manifest finds."""
    parts = [manifest(store, "manifest.json")["datasets"]["public.orders"]["part"]]
    parts += [f"manifest/public.orders/{name}" for name in manifest(store, parts[0])["before"]]
    files = [f"{BUCKET}/lake/{file['path']}" for part in parts for file in manifest(store, part)["files"]]
    found = ds.dataset(files, filesystem=store.files, format="parquet").to_table(["seq"])
    return sorted(found["seq"].to_pylist())


def uploads(store: ObjectStore) -> int:
    return sum(request.startswith(("PUT", "POST")) for request in store.faults.requests)


@pytest.mark.long
@pytest.mark.timeout(KILLS * COMMAND_TIMEOUT)
def test_runs_that_are_killed_in_uploads(store: ObjectStore, database_dsn: str, tmp_path: Path) -> None:
    chance = random.Random(32)
    settings = {**SETTINGS, "database_dsn": database_dsn}
    with small_log(database_dsn, 1000) as log:
        store.faults.share, store.faults.kinds = 0.7, ("delay", "twice", "dropped after")
        for _ in range(KILLS):
            killed(store, settings, tmp_path, chance.randrange(1, 14))
            add_inserts(log, 50)
        store.faults.share = 0.0
        for _ in range(4):  # what Iceberg has no longer the next run removes
            done = run_command("export", "run", folder=tmp_path, export_keep="1s", export_checkpoints="1s", **settings)
            assert done.returncode == 0, done
            head = add_inserts(log, 1)
        assert seqs(store) == list(range(1, head))
        require_no_more(store, log)
        require_no_secret(tmp_path, done)


def killed(store: ObjectStore, settings: dict[str, Any], folder: Path, after: int) -> None:
    """Start a run, and kill it at its so-manieth upload, unless it has ended by then."""
    before = uploads(store)
    run = subprocess.Popen(
        [*COMMAND, "export", "run"],
        cwd=folder,
        env=environment(settings),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    eventually(lambda: run.poll() is not None or uploads(store) >= before + after, timeout=COMMAND_TIMEOUT)
    if run.poll() is None:
        os.killpg(run.pid, signal.SIGKILL)
    run.wait()


def require_no_more(store: ObjectStore, log: psycopg.Connection) -> None:
    """Nothing is there that neither the ledger nor Iceberg knows, but for what the last run has replaced."""
    known = {path for (path,) in log.execute("select path from pipeline.export_files").fetchall()}
    known |= {path for (path,) in log.execute("select path from pipeline.export_replaced").fetchall()}
    known |= {
        f"current/{name}"
        for (name,) in log.execute(
            "select f ->> 'name' from pipeline.export_states s, jsonb_array_elements(s.files) f"
        ).fetchall()
    }
    held = {key.removeprefix("lake/") for key in store.objects("lake/")}
    assert [path for path in held if path.startswith(("changes/", "current/", "messages/")) and path not in known] == []


def require_no_secret(folder: Path, done: subprocess.CompletedProcess[str]) -> None:
    secret = CREDENTIALS["AWS_SECRET_ACCESS_KEY"]
    logs = [path.read_text(errors="replace") for path in folder.rglob("*.log")]
    assert logs
    assert not [text for text in (done.stdout, done.stderr, *logs) if secret in text]


@pytest.mark.long
def test_a_run_whose_store_refuses_says_why_in_one_line(store: ObjectStore, database_dsn: str, tmp_path: Path) -> None:
    with small_log(database_dsn, 10):
        refused = {**SETTINGS, "export_dir": "s3://nobody-has-this/lake", "database_dsn": database_dsn}
        done = run_command("export", "run", folder=tmp_path, **refused)
    assert done.returncode == 1
    assert "there is no such bucket; make it, or name another" in done.stderr
    assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in done.stdout + done.stderr
