"""A script that waits for its next run: who may use it, and that nothing of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from pipeline.errors import ExportFailedError
from pipeline.exports import child
from pipeline.exports.child import KeptProcess, ScriptEvent, SparkScript
from tests.fixtures.processes import alive
from tests.fixtures.waiting import eventually

WAITS = """
import json, os, sys
arguments = sys.argv[1:]
while True:
    print(json.dumps({"event": "done", "pid": os.getpid(), "run": arguments[-1]}), flush=True)
    print("to the log of", arguments[-1], file=sys.stderr, flush=True)
    if "fails" in arguments:
        print(json.dumps({"event": "failed", "reason": "no luck"}), flush=True)
        sys.exit(1)
    print(json.dumps({"event": "kept"}), flush=True)
    line = sys.stdin.readline()
    if not line or "gone" in line:
        sys.exit(0)
    arguments = json.loads(line)
"""
"""As `spark/export.py`, without Spark; asked for a run called "gone" it finds its session ended, and so ends."""


@pytest.fixture
def kept() -> Iterator[KeptProcess]:
    made = KeptProcess()
    yield made
    made.close()


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., SparkScript]:
    file = tmp_path / "script.py"
    file.write_text(WAITS)

    def make(*again: str, **environment: str) -> SparkScript:
        command = [sys.executable, str(file), "--lake", *again]
        return SparkScript(command, {**os.environ, **environment}, tmp_path / f"{again[-1]}.log", 60, again)

    return make


def run(script: SparkScript, kept: KeptProcess | None) -> ScriptEvent:
    events: list[ScriptEvent] = []
    last = child.run(script, events.append, lambda: False, kept)
    assert events == [last]
    return last


def is_said(log: Path, text: str) -> bool:
    return text in log.read_text()


def test_the_next_run_is_done_by_the_process_of_the_one_before(
    script: Callable[..., SparkScript], kept: KeptProcess
) -> None:
    pids = set()
    for name in ("1", "2"):  # each has its own log, with what the process says meanwhile
        done = run(script(name), kept)
        assert done["run"] == name
        pids.add(done["pid"])
        eventually(partial(is_said, script(name).log, f"to the log of {name}"))
    assert len(pids) == 1


def test_a_process_with_other_settings_is_ended(script: Callable[..., SparkScript], kept: KeptProcess) -> None:
    first, second = run(script("1"), kept), run(script("2", LAKE_SAID="something else"), kept)
    assert first["pid"] != second["pid"]
    assert not alive(first["pid"])


@pytest.mark.parametrize("how", ["killed", "its session has ended"])
def test_one_that_has_ended_is_replaced(script: Callable[..., SparkScript], kept: KeptProcess, how: str) -> None:
    first = run(script("1"), kept)
    if how == "killed":
        os.kill(first["pid"], signal.SIGKILL)
        eventually(lambda: not alive(first["pid"]))
    second = run(script("gone" if how != "killed" else "2"), kept)
    assert first["pid"] != second["pid"]


def test_a_run_that_fails_keeps_nothing(script: Callable[..., SparkScript], kept: KeptProcess) -> None:
    first = run(script("1"), kept)
    with pytest.raises(ExportFailedError, match="no luck"):
        child.run(script("fails", "2"), lambda _: None, lambda: False, kept)
    assert not alive(first["pid"])
    assert run(script("3"), kept)["pid"] != first["pid"]


def test_a_log_that_cannot_be_written_leaves_it_waiting(script: Callable[..., SparkScript], kept: KeptProcess) -> None:
    first = run(script("1"), kept)
    with pytest.raises(ExportFailedError, match="No such file or directory"):
        child.run(replace(script("2"), log=Path("/nowhere/log")), lambda _: None, lambda: False, kept)
    assert run(script("3"), kept)["pid"] == first["pid"]


def test_what_waits_ends_when_it_is_closed(script: Callable[..., SparkScript], kept: KeptProcess) -> None:
    first = run(script("1"), kept)
    assert alive(first["pid"])
    kept.close()
    assert not alive(first["pid"])


def test_what_waits_ends_with_a_server_that_is_killed(script: Callable[..., SparkScript], tmp_path: Path) -> None:
    code = f"""import os, time
from pathlib import Path
from pipeline.exports import child
from pipeline.exports.child import KeptProcess, SparkScript
script = SparkScript({script("1").command!r}, dict(os.environ), Path({str(tmp_path / "log")!r}), 60, ["1"])
print(child.run(script, lambda _: None, lambda: False, KeptProcess())["pid"], flush=True)
time.sleep(600)"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        pid = int(server.stdout.readline())
        server.kill()
        eventually(lambda: not alive(pid))
