"""What children write to standard error is in the log of JSON, however they end, and keeps no process waiting."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import logging, os, signal, sys, time
from functools import partial
from pipeline import logs
from pipeline.process.child import ChildProcess, program
from pipeline.process.child_errors import ChildErrors
from pipeline.process.fork_client import ForkServer
from pipeline.process.fork_server import fork_on_request
from pipeline.process.signals import read_settings

def run():
    forked = fork_on_request(lambda: None)
    if forked is None:
        return 0
    read_settings()
    match forked[0]:
        case "killed":
            os.write(2, b"a line, and \\xff\\n")
            os.kill(os.getpid(), signal.SIGKILL)
        case "raising":
            raise ValueError("on the way")
        case "logging":
            logs.setup("info", "json", "logging")
            logging.getLogger().info("its own", extra={"table": "a\\nb"})
        case "busy":
            for number in range(10_000):
                os.write(2, b"%d %s\\n" % (number, b"x" * 90))
    return 75

logs.setup("info", "json", "serve")
with ChildErrors(logs.relay) as errors, ForkServer(run, ["false"], errors) as server, errors.listening():
    names = ("killed", "raising", "logging", "busy")
    children = [ChildProcess(name, partial(server.fork, name), "") for name in names]
    command = [sys.executable, "-c", "import warnings; warnings.warn('old')"]
    for child in [*children, ChildProcess("program", program(command, errors), "")]:
        child.start()
        while child.process.poll() is None:
            time.sleep(0.005)
print([child.process.poll() for child in children])
"""


def test_all_that_children_say_is_json() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[-9, 1, 75, 75]\n", "each ends with its own status"
    found = [json.loads(line) for line in done.stderr.splitlines()]
    said = [each["message"] for each in found if each.get("action") == "serve.stderr"]
    assert "a line, and \\xff" in said
    assert "ValueError: on the way" in said
    assert [text for text in said if "UserWarning: old" in text]
    assert [int(text.split()[0]) for text in said if text.endswith("x" * 90)] == list(range(10_000))
    assert [each["table"] for each in found if each["message"] == "its own"] == ["a\nb"]
