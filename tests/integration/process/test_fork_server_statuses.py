"""How a forked process ended is told exactly as of a program that was started; and it may have others forked."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, os, signal, sys, time
from functools import partial
from pipeline.process.child import ChildProcess
from pipeline.process.signals import read_settings
from pipeline.errors import DatabaseUnavailableError
from pipeline.process import fork_client
from pipeline.process.fork_client import ForkServer
from pipeline.process.fork_server import fork_on_request

def run():
    forked = fork_on_request(lambda: None)
    if forked is None:
        return 0
    name, siblings = forked
    if (settings := read_settings()) is None:
        return 0
    assert settings == "settings of " + name
    match name.split():
        case ["stay", *said]:
            print(*said, flush=True)
            return len(os.read(0, 1))
        case ["ask", *names]:
            print(json.dumps(statuses(siblings, names, lambda: time.sleep(0.01))), flush=True)
            return 0
        case ["freeze"]:
            fork_client.FROZEN_SECONDS = 0.3
            os.kill(os.getppid(), signal.SIGSTOP)
            try:
                begun(siblings, ["stay"])
            except DatabaseUnavailableError as error:
                print(json.dumps(str(error)), flush=True)
            os.kill(os.getppid(), signal.SIGCONT)
            return 0
        case ["die", *names]:
            begun(siblings, names)
            os.kill(os.getpid(), signal.SIGKILL)
        case [end] if end.startswith("-"):
            os.kill(os.getpid(), -int(end))
        case [end]:
            return int(end)

def begun(forks, names):
    children = [ChildProcess(name, partial(forks.fork, name), "settings of " + name) for name in names]
    for child in children:
        child.start()
    return children

def statuses(forks, names, look):
    children = begun(forks, names)
    while any(child.process.poll() is None for child in children):
        look()
    return [child.process.poll() for child in children]

def look():
    fork_server.ended()
    time.sleep(0.01)

with ForkServer(run, ["no program"]) as fork_server:
    while not fork_server.ready:
        look()
    print(json.dumps(statuses(fork_server, sys.argv[1:], look)), flush=True)
"""


def ended(*names: str | int) -> list[list[int] | str]:
    """The statuses of what was forked under these names, as told to each who asked, in the order in which they knew."""
    command = [sys.executable, "-c", PROGRAM, *map(str, names)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines() if line]


def test_exit_statuses_and_signals_are_told_as_they_are():
    ends = [0, 1, 2, 75, -9, -15]
    assert ended(*ends) == [ends]


def test_who_asked_for_a_process_is_told_of_its_end():
    assert ended("ask 3 -9", 0) == [[3, -9], [0, 0]]


def test_a_process_ends_with_its_requester_and_the_fork_server_continues():
    assert ended("die stay stay", 5, "ask 4") == [[4], [-9, 5, 0]]


def test_a_fork_server_that_does_not_answer_is_not_asked_again():
    """Its late answer would be taken for that to another request."""
    assert ended("freeze") == ["no process for stay: the fork server does not answer", [0]]


@pytest.mark.parametrize("times", [3, pytest.param(30, marks=pytest.mark.long)])
def test_nothing_is_said_when_all_end_at_once(times: int):
    """Of a server that is killed, roles end while the fork server does."""
    for _ in range(times):
        command = [sys.executable, "-c", PROGRAM, *["stay here"] * 20]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            said = "".join(server.stdout.readline() for _ in range(20))
            server.kill()
            assert said.count("here") == 20
            assert server.communicate(timeout=60) == ("", "")  # all of them have closed it
