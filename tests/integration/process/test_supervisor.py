"""The order in which a supervisor stops its children."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from pipeline.process.fork_client import ForkServer
from pipeline.process.fork_server import fork_on_request
from pipeline.process.signals import StopSignal, read_settings
from pipeline.process.supervisor import Supervisor

def run():
    if (forked := fork_on_request(lambda: None)) is None:
        return 0
    stop, name = StopSignal(ignore_interrupt=True), forked[0]
    read_settings()
    Path(name).touch()
    stop.wait(60)
    Path(name + " is told").touch()
    while name == "first" and not Path("last is told").exists():
        time.sleep(0.01)
    return 0

def stop_once_both_run():
    if Path("first").exists() and Path("last").exists():
        os.kill(os.getpid(), signal.SIGTERM)

with ForkServer(run, ["no program"]) as fork_server:
    told = {"leads": lambda: True, "at_once": ["last"], "beat": stop_once_both_run}
    sys.exit(Supervisor(["first", "last"], fork_server, "", **told).run())
"""


def test_a_role_that_is_stopped_at_once_does_not_wait_for_earlier_ones(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, "killed" in done.stderr) == (0, False), done.stderr
    assert (tmp_path / "first is told").exists()
