"""The programs in docs/examples do what they say, run by the commands that its README shows."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pipeline.postgres.embedded import wheel_bin_dir
from tests.fixtures.browsers import required
from tests.fixtures.postgres import free_port
from tests.fixtures.server import ROOT, Serving, Shared, environment
from tests.fixtures.waiting import eventually

README = (ROOT / "docs" / "examples" / "README.md").read_text()
COMMANDS: list[str] = re.findall(r"^\$ (.*)$", README, re.MULTILINE)
TOKEN = "s3cret+/token="
pytestmark = pytest.mark.xdist_group("examples")  # one server, to which each adds
ROWS = 30


def command(program: str) -> str:
    """The line of the README that runs it."""
    return next(line for line in COMMANDS if f"/{program}" in line)


@contextmanager
def running(line: str, settings: dict[str, str], output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A shell command in the repository, ended by Ctrl-C."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], str(wheel_bin_dir(18))])
    with output.open("ab") as stream:
        process = subprocess.Popen(
            ["bash", "-c", line],
            cwd=ROOT,
            env={**environment({}), "PATH": path, **settings},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    try:
        yield process
        assert process.poll() is None, output.read_text()
    finally:
        print(output.read_text())
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def create(consumer: str, settings: dict[str, str]) -> None:
    """By the line of the README that makes it."""
    line = next(line for line in COMMANDS if line.startswith("curl") and f'"{consumer}"' in line)
    with_token = line.replace("curl", 'curl -sS -H "Authorization: Bearer $PIPELINE_API_TOKEN"')
    done = subprocess.run(["bash", "-c", with_token], env={**os.environ, **settings}, capture_output=True, check=True)
    assert json.loads(done.stdout)["name"] == consumer


def until(look: Callable[[], object], expected: object) -> None:
    """Wait until it finds that; tables that it looks at may be made meanwhile."""

    def check() -> None:
        assert look() == expected

    eventually(check, errors=(AssertionError, psycopg.Error))


class Orders:
    """The table whose changes all examples read: `keys` of all rows that were ever there, and how many changes."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection
        self.keys: set[str] = set()
        self.changes = 0
        connection.execute("create table orders (id int primary key, state text)")

    def write(self) -> None:
        """This many inserts, an update of each, and a delete of the first."""
        first = len(self.keys)
        self.keys |= {str(key) for key in range(first, first + ROWS)}
        self.changes += 2 * ROWS + 1
        self._connection.execute(
            "insert into orders select n, 'new' from generate_series(%s::int, %s) n", [first, first + ROWS - 1]
        )
        self._connection.execute("update orders set state = 'paid' where id >= %s", [first])
        self._connection.execute("delete from orders where id = %s", [first])

    def rows(self) -> list[Any]:
        """What a copy of it holds."""
        return self._connection.execute("select id, state from orders order by id").fetchall()


@pytest.fixture(scope="module")
def orders(shared: Shared) -> Iterator[Orders]:
    with psycopg.connect(shared.source_dsn, autocommit=True) as source:
        yield Orders(source)


@pytest.fixture(scope="module")
def grpc_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def server(orders: Orders, shared: Shared, grpc_port: int) -> Serving:
    started = shared.serve(api_token=TOKEN, snapshot="never", grpc_port=grpc_port)
    orders.write()
    return started


@pytest.fixture(scope="module")
def settings(server: Serving, shared: Shared) -> dict[str, str]:
    return {
        "PIPELINE_DATABASE_DSN": shared.database_dsn,
        "PIPELINE_URL": f"http://127.0.0.1:{server.port}",
        "PIPELINE_API_TOKEN": TOKEN,
    }


@pytest.fixture
def log(shared: Shared) -> Iterator[psycopg.Connection]:
    with psycopg.connect(shared.database_dsn, autocommit=True) as connection:
        yield connection


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "output"


def test_the_queue_in_psql_keeps_a_copy(
    orders: Orders, settings: dict[str, str], output: Path, log: psycopg.Connection
) -> None:
    def copied() -> list[Any]:
        return log.execute(
            "select record_pk::int, record ->> 'state' from rows_copied where source_table_name = 'orders' order by 1"
        ).fetchall()

    arrived = "select count(*) from sequin_events where source_table_name = 'orders'"
    until(lambda: log.execute(arrived).fetchone(), (orders.changes,))
    as_read = "update sequin_events set action = 'read' where action = 'update' and record_pk::int % 2 = 0"
    log.execute(f"{as_read} and source_table_name = 'orders'")
    for _ in range(2):
        with running(command("queue.sql"), settings, output):
            until(copied, orders.rows())
        orders.write()


def test_the_python_follower_counts_each_change_once(
    orders: Orders, settings: dict[str, str], output: Path, log: psycopg.Connection
) -> None:
    def counted() -> object:
        return log.execute("select changes from change_counts where table_name = 'orders'").fetchone()

    for _ in range(2):
        orders.write()
        with running(command("follow.py"), settings, output):
            until(counted, (orders.changes,))
    assert counted() == (orders.changes,)


def test_the_shell_script_receives_and_acknowledges(
    orders: Orders, settings: dict[str, str], output: Path, log: psycopg.Connection
) -> None:
    required("curl")
    left = (
        "select count(*) from consumer_records"
        " where consumer_id = (select id from pipeline.consumers where name = 'printer')"
    )
    with running(command("receive.sh"), settings, output):
        eventually(lambda: output.read_text().count('"ack_id"') >= len(orders.keys))
        eventually(lambda: log.execute(left).fetchone() == (0,))
    items = [item for line in output.read_text().splitlines() for item in json.loads(line)["data"]]
    assert {item["record_pk"] for item in items} == orders.keys


def test_node_prints_the_stream_and_goes_on_where_it_ended(
    orders: Orders, settings: dict[str, str], output: Path, log: psycopg.Connection
) -> None:
    def acknowledged() -> tuple[int, bool]:
        """What is printed, and whether the last of it is acknowledged: only then it does not come again."""
        seqs = [int(line.split()[0]) for line in _changes(output)]
        row = log.execute("select position from pipeline.consumers where name = 'live'").fetchone()
        return len(seqs), row is not None and row[0] in seqs[-1:]

    required("node")
    create("live", settings)
    for _ in range(2):
        orders.write()
        with running(command("stream.mjs"), settings, output):
            until(acknowledged, (orders.changes, True))
    changes = _changes(output)
    assert len(changes) == len(set(changes)) == orders.changes
    assert changes == sorted(changes, key=lambda line: int(line.split()[0]))


def test_the_grpc_follower_prints_and_goes_on_where_it_ended(
    orders: Orders, grpc_port: int, settings: dict[str, str], output: Path, log: psycopg.Connection
) -> None:
    def settled() -> tuple[int, bool]:
        """What is printed, and whether the last of it is acknowledged."""
        seqs = [int(line.split()[0]) for line in _changes(output)]
        row = log.execute("select position from pipeline.consumers where name = 'over-grpc'").fetchone()
        return len(seqs), row is not None and row[0] in seqs[-1:]

    required("curl")
    create("over-grpc", settings)
    line = command("follow_grpc.py").replace("127.0.0.1:50051", f"127.0.0.1:{grpc_port}")
    for _ in range(2):
        orders.write()
        with running(line, settings, output):
            until(settled, (orders.changes, True))
    changes = _changes(output)
    assert len(changes) == len(set(changes)) == orders.changes


def _changes(output: Path) -> list[str]:
    return [line for line in output.read_text().splitlines() if " orders " in line]


def test_the_queue_in_psql_keeps_the_changes_of_rows_without_a_key(
    orders: Orders, shared: Shared, settings: dict[str, str], output: Path, log: psycopg.Connection
) -> None:
    with psycopg.connect(shared.source_dsn, autocommit=True) as source:
        source.execute("create table notes (text text); create table emptied (id int primary key)")
        published = "select count(*) from pg_publication_tables where tablename in ('notes', 'emptied')"
        eventually(lambda: source.execute(published).fetchone() == (2,))
        source.execute("insert into emptied values (1), (2)")
        source.execute("insert into notes values ('a'), ('b'), ('b')")

        def copied(table: str) -> list[Any]:
            return log.execute(
                "select coalesce(record ->> 'text', action) from changes_without_key where source_table_name = %s"
                " union all select record_pk from rows_copied where source_table_name = %s order by 1",
                [table, table],
            ).fetchall()

        with running(command("queue.sql"), settings, output):
            until(lambda: copied("notes"), [("a",), ("b",), ("b",)])
            until(lambda: copied("emptied"), [("1",), ("2",)])
            source.execute("truncate emptied")
            until(lambda: copied("emptied"), [("truncate",)])
    assert "ERROR" not in output.read_text()


def test_every_example_is_run_here_or_by_the_browsers() -> None:
    programs = {path.name for path in (ROOT / "docs" / "examples").iterdir() if path.name != "README.md"}
    # These are run by tests/acceptance/followers/test_async_users.py and tests/spark/test_stream_example.py.
    programs -= {"async_users", "spark_counts.py", "auto_cdc"}
    assert programs == {"queue.sql", "follow.py", "receive.sh", "stream.mjs", "stream.html", "follow_grpc.py"}
    assert all(f"[{name}]({name})" in README for name in programs)
