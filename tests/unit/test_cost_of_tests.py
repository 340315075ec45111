"""What `make test-time` measures."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.fixtures.cost.process_tree import usage
from tests.fixtures.server import ROOT

_BUSY = "import time\nwhile time.process_time() < 0.4: pass"
_LEAVES_ONE_BEHIND = f"""
import os, subprocess, sys, time
sys.path.insert(0, ".")
from tests.fixtures.cost.process_tree import usage

code = "import os, subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]]); os._exit(0)"
before = usage(os.getppid()).cpu
subprocess.run([sys.executable, "-c", code, {_BUSY!r}], check=True)
while usage(os.getppid()).cpu - before < 0.3:
    time.sleep(0.01)
"""


def test_the_time_of_a_process_that_its_parent_has_left_behind_is_counted() -> None:
    command = [sys.executable, "tests/fixtures/cost/subreaper.py", "-c", _LEAVES_ONE_BEHIND]
    assert subprocess.run(command, cwd=ROOT, timeout=60).returncode == 0


def test_the_time_of_a_process_that_has_ended_is_counted() -> None:
    before = usage(os.getpid())
    subprocess.run([sys.executable, "-c", f"{_BUSY}\nprint('x' * 10**6)"], check=True, stdout=subprocess.PIPE)
    used = usage(os.getpid()).since(before)
    assert used.cpu >= 0.3  # it is counted in ticks of 10 ms
    assert used.written >= 10**6
