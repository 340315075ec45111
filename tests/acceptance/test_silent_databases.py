"""Commands that look, where a database's machine accepts connections and never answers, or swallows every packet."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from pipeline.errors import DatabaseUnavailableError
from pipeline.postgres import connections
from tests.fixtures.postgres import free_port
from tests.fixtures.server import run_command

LOOKS = (
    ("status",),
    ("check",),
    ("followers", "list"),
    ("followers", "show", "one"),
    ("sources", "list"),
    ("slots", "list"),
    ("backfill", "list"),
    ("export", "list"),
    ("consumers", "list"),
    ("dead-letters", "list"),
    ("routes", "list"),
    ("retention",),
    ("verify",),
)
SAID = "is not available: no answer within 3 s"
SECONDS = 5.0


@contextmanager
def silent() -> Iterator[str]:
    """The DSN of a port that accepts connections and says nothing."""
    with closing(socket.create_server(("localhost", 0))) as listener:
        yield f"host=localhost port={listener.getsockname()[1]} user=me dbname=away"


@contextmanager
def swallowing() -> Iterator[str]:
    """The DSN of a port that answers no packet: the queue of its listener is full."""
    with ExitStack() as stack:
        listener = stack.enter_context(closing(socket.create_server(("127.0.0.1", 0), backlog=0)))
        for _ in range(3):
            waiting = stack.enter_context(closing(socket.socket()))
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield f"host=127.0.0.1,127.0.0.1,localhost port={listener.getsockname()[1]} user=me dbname=away"


def answers(folder: Path, dsn: str) -> list[tuple[int, str, float]]:
    """Exit status, text and seconds of each command."""

    def run(command: tuple[str, ...]) -> tuple[int, str, float]:
        began = time.monotonic()
        done = run_command(*command, folder=folder, source_dsn=dsn, database_dsn=dsn)
        return done.returncode, done.stdout + done.stderr, time.monotonic() - began

    run_command("--version", folder=folder)  # the process that forks commands has imported them
    with ThreadPoolExecutor(len(LOOKS)) as all_at_once:
        return list(all_at_once.map(run, LOOKS))


def test_each_look_says_soon_that_a_database_is_away(tmp_path: Path) -> None:
    with silent() as dsn:
        for command, (status, text, _) in zip(LOOKS, answers(tmp_path, dsn), strict=True):
            assert (status, SAID in text) == (1, True), (command, text)


@pytest.mark.long
@pytest.mark.parametrize("away", [silent, swallowing])
def test_each_look_waits_at_most_five_seconds(away: Callable[[], AbstractContextManager[str]], tmp_path: Path) -> None:
    """More than where the port is closed, which the machine's load makes long, too."""
    with away() as dsn:
        taken = [seconds for *_, seconds in answers(tmp_path, dsn)]
    closed = [seconds for *_, seconds in answers(tmp_path, f"host=127.0.0.1 port={free_port()} user=me dbname=away")]
    assert max(slow - usual for slow, usual in zip(taken, closed, strict=True)) < SECONDS


def test_the_limit_of_a_dsn_holds_for_a_command() -> None:
    with silent() as dsn, pytest.raises(DatabaseUnavailableError, match="no answer within 1 s"):
        connections.connect_promptly(f"{dsn} connect_timeout=1", "source", name="test")
