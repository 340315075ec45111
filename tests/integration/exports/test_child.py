"""A script as a process: what is passed on, why it failed, and that nothing it started is left."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import ExportFailedError, ExportStoppedError
from pipeline.exports import child
from pipeline.exports.child import ScriptEvent, SparkScript
from tests.fixtures.processes import alive
from tests.fixtures.waiting import eventually

STUBBORN = """
import os, signal, subprocess, sys, time
deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
process = subprocess.Popen([sys.executable, "-c", deaf], stdout=subprocess.PIPE)
process.stdout.readline()
print('{"event": "began", "pid": %d}' % process.pid, flush=True)
"""
"""A script whose JVM, so to speak, is deaf to SIGTERM."""


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., list[ScriptEvent]]:
    """Run Python code as a script; returns its events. `events` gets them also when it fails."""

    def act(
        code: str,
        *,
        seconds: float = 60,
        events: list[ScriptEvent] | None = None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> list[ScriptEvent]:
        on_event: list[ScriptEvent] = [] if events is None else events
        script = SparkScript([sys.executable, "-c", code], dict(os.environ), tmp_path / "log", seconds)
        child.run(script, on_event.append, stopped)
        return on_event

    return act


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is deaf is killed soon."""
    monkeypatch.setattr(child, "END_SECONDS", 1.0)
    monkeypatch.setattr(child, "REST_SECONDS", 0.3)


def test_events_are_passed_on_and_the_rest_is_in_the_log(run: Callable[..., Any], tmp_path: Path) -> None:
    code = """import os
print('{"event": "begins", "upto_seq": 7}'); print("WARN: not for you"); print('["no event"]')
print('{"event": "progress"}'); print('{"event": "progress"}'); print('{"event": "done", "rows": 3}')
os.write(2, b"from Spark\\n")"""
    assert run(code) == [{"event": "begins", "upto_seq": 7}, {"event": "progress"}, {"event": "done", "rows": 3}]
    log = (tmp_path / "log").read_text()
    for line in ("WARN: not for you", '{"event": "done", "rows": 3}', "from Spark"):
        assert line in log
    written = [datetime.fromisoformat(line.split()[0]) for line in log.splitlines() if line != "from Spark"]
    assert len(written) == 5
    assert all(abs(datetime.now(UTC) - at) < timedelta(minutes=5) for at in written)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("""print('{"event": "failed", "reason": "no luck"}'); exit(1)""", "^no luck$"),
        ("import os; os.kill(os.getpid(), 9)", "^killed by signal 9; its log is /"),
        ("import nothing_of_the_kind", "^ended with status 1: ModuleNotFoundError: .*; its log is /"),
        ("exit(3)", "^ended with status 3: the script printed nothing; its log is /"),
    ],
)
def test_why_it_failed(run: Callable[..., Any], code: str, reason: str) -> None:
    with pytest.raises(ExportFailedError, match=reason):
        run(code)


def test_a_script_that_takes_too_long_ends_with_all_it_started(run: Callable[..., Any]) -> None:
    for seconds in (2, 20, 100):  # where the machine is busy, it takes a while to begin
        events: list[ScriptEvent] = []
        with pytest.raises(ExportFailedError, match=rf"took longer than {seconds} s; raise PIPELINE_EXPORT_TIMEOUT"):
            run(STUBBORN + "time.sleep(600)", seconds=seconds, events=events)
        if events:
            break
    assert_gone(events)


def test_a_script_that_is_stopped_ends_with_all_it_started(run: Callable[..., Any]) -> None:
    events: list[ScriptEvent] = []
    with pytest.raises(ExportStoppedError, match="nothing is lost"):
        run(STUBBORN + "time.sleep(600)", events=events, stopped=lambda: bool(events))
    assert_gone(events)


def test_what_outlives_a_script_that_ended_well_is_ended(run: Callable[..., Any]) -> None:
    assert_gone(run(STUBBORN))


def test_a_script_that_is_interrupted_ends_with_all_it_started(run: Callable[..., Any]) -> None:
    events: list[ScriptEvent] = []

    def interrupt() -> bool:
        if events:
            raise KeyboardInterrupt
        return False

    with pytest.raises(KeyboardInterrupt):
        run(STUBBORN + "time.sleep(600)", events=events, stopped=interrupt)
    assert_gone(events)


def assert_gone(events: list[ScriptEvent]) -> None:
    [pid] = [event["pid"] for event in events]
    eventually(lambda: not alive(pid))


def test_a_script_whose_server_was_killed_ends_with_its_next_word(tmp_path: Path) -> None:
    talker = (
        "import os, time; print(os.getpid(), flush=True)\nwhile True: print(time.time(), flush=True); time.sleep(0.05)"
    )
    log = tmp_path / "log"
    code = f"""import pathlib, sys; from pipeline.exports import child
script = child.SparkScript([sys.executable, '-c', {talker!r}], {{}}, pathlib.Path({str(log)!r}), 600)
child.run(script, print, lambda: False)"""
    server = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[3])
    pid = eventually(lambda: int(log.read_text().split()[1]), errors=(OSError, IndexError))
    server.kill()
    server.wait()
    eventually(lambda: not alive(pid))


SILENT = """
import subprocess, sys, time
from lake.running import parent
parent.end_with_parent()
other = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])
print(other.pid, flush=True)
time.sleep(600)
"""


def test_a_silent_script_whose_server_was_killed_ends_with_all_it_started(tmp_path: Path) -> None:
    log, spark = tmp_path / "log", Path(__file__).parents[3] / "spark"
    code = f"""import pathlib, sys; from pipeline.exports import child
script = child.SparkScript(
    [sys.executable, '-c', {SILENT!r}], {{'PYTHONPATH': {str(spark)!r}}}, pathlib.Path({str(log)!r}), 600
)
child.run(script, print, lambda: False)"""
    server = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[3])
    pid = eventually(lambda: int(log.read_text().split()[1]), errors=(OSError, IndexError))
    assert alive(pid)
    server.kill()
    server.wait()
    eventually(lambda: not alive(pid))


SLOW = """
import signal, sys, time
def end(*_):
    open(sys.argv[1], "w").close()
    time.sleep(float(sys.argv[2]))
    open(sys.argv[1] + ".ended", "w").close()
    sys.exit()
signal.signal(signal.SIGTERM, end)
print(flush=True)
time.sleep(600)
"""
PATIENT = f"""
import subprocess, sys, time
sys.path.insert(0, {str(Path(__file__).parents[3] / "spark")!r})
from lake.running import parent
parent.REST_SECONDS = 600.0
parent.end_with_parent()
process = subprocess.Popen([sys.executable, "-c", {SLOW!r}, TOLD, SECONDS], stdout=subprocess.PIPE)
process.stdout.readline()
print('{{"event": "began", "pid": %d}}' % process.pid, flush=True)
time.sleep(600)
"""
"""A script whose JVM creates the file TOLD at SIGTERM, and ends SECONDS later."""


def test_a_script_ends_with_its_jvm_if_its_stopping_server_is_killed(tmp_path: Path) -> None:
    log, told = tmp_path / "log", tmp_path / "told"
    patient = f"TOLD, SECONDS = {str(told)!r}, '600'\n{PATIENT}"
    code = f"""import pathlib, sys; from pipeline.exports import child
child.END_SECONDS = child.REST_SECONDS = 600.0
script = child.SparkScript([sys.executable, '-c', {patient!r}], {{}}, pathlib.Path({str(log)!r}), 600)
events = []
child.run(script, events.append, lambda: bool(events))"""
    server = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[3])
    eventually(told.exists)
    pid = int(log.read_text().rpartition('"pid": ')[2].rstrip("}\n"))
    assert alive(pid)
    server.kill()
    server.wait()
    eventually(lambda: not alive(pid))


def test_a_script_that_is_stopped_gives_its_jvm_time_to_end(
    run: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "END_SECONDS", 60.0)
    events: list[ScriptEvent] = []
    code = f"TOLD, SECONDS = {str(tmp_path / 'told')!r}, '0.5'\n{PATIENT}"
    with pytest.raises(ExportStoppedError):
        run(code, events=events, stopped=lambda: bool(events))
    assert (tmp_path / "told.ended").exists()
    assert_gone(events)


def test_no_thread_is_left(run: Callable[..., Any]) -> None:
    run(STUBBORN)
    eventually(lambda: "export output" not in {thread.name for thread in threading.enumerate()})


def test_a_log_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ExportFailedError, match=r"nowhere/log: No such file or directory; fix that"):
        child.run(SparkScript(["true"], {}, tmp_path / "nowhere" / "log", 1), lambda _: None, lambda: False)
