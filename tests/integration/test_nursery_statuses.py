"""How a forked process ended is told exactly as of a program that was started."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import json, os, signal, sys, time
from functools import partial
from pipeline.child import Child
from pipeline.loop import read_settings
from pipeline.nursery import Nursery, fork_on_request

def run():
    end = fork_on_request(lambda: None)
    if end is None:
        return 0
    assert read_settings() == "settings of " + end
    if end.startswith("-"):
        os.kill(os.getpid(), -int(end))
    return int(end)

def look():
    nursery.kill_if_frozen()
    time.sleep(0.01)

with Nursery(run, ["no program"]) as nursery:
    while not nursery.ready:
        look()
    children = [Child(end, partial(nursery.fork, end), "settings of " + end) for end in sys.argv[1:]]
    for child in children:
        child.start()
    while any(child.process.poll() is None for child in children):
        look()
    print(json.dumps([child.process.poll() for child in children]))
"""


def test_exit_statuses_and_signals_are_told_as_they_are():
    ends = [0, 1, 2, 75, -9, -15]
    command = [sys.executable, "-c", PROGRAM, *map(str, ends)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout) == ends
    assert done.stderr == ""
