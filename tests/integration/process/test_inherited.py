"""A process that inherits others collects those that have ended, and leaves its own children's exit status alone."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import ctypes, json, os, subprocess, threading, time
from pathlib import Path
from pipeline.process import inherited

ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: it inherits as PID 1 does
own = subprocess.Popen(["sh", "-c", "exit 7"])
orphans = [int(pid) for pid in subprocess.run(
    ["sh", "-c", "for i in 1 2 3; do (exec sleep 0.05) >/dev/null & echo $!; done"], stdout=subprocess.PIPE
).stdout.split()]

def there(pid):
    return Path(f"/proc/{pid}").exists()

found = []
def many():  # each ends long before `wait` returns, since its children hold its output
    for _ in range(10):
        with inherited.own_child():
            found.append(subprocess.run(["sh", "-c", "sleep 0.02 & exit 5"], stdout=subprocess.PIPE).returncode)

thread = threading.Thread(target=many)
thread.start()
while thread.is_alive() or any(map(there, orphans)):
    inherited.collect([own.pid])
    if own.poll() is None:
        time.sleep(0.001)
print(json.dumps({"own": own.poll(), "waited": found, "left": [each for each in orphans if there(each)]}))
"""


def test_orphans_are_collected_and_own_children_keep_their_status() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout) == {"own": 7, "waited": [5] * 10, "left": []}
