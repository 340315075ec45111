"""Runs the blocks of a page as they stand, in their order, and compares what they print with what the page shows."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from pipeline.postgres.embedded import EmbeddedServer, wheel_bin_dir
from tests.fixtures.postgres import MAJORS, Cluster, temporary_server
from tests.pages.blocks import FencedBlock, PageMark, ShownCommand, commands, steps
from tests.pages.output import difference
from tests.pages.terminal import RunningProgram, TerminalSet

ROOT = Path(__file__).parents[2]
PATIENCE = 180
"""Seconds until a server is ready, or until a reader sees what was written before."""
COMMAND_TIMEOUT, MAKE_TIMEOUT = 300, 1200
"""Seconds for a command; `make` installs first what it needs."""
SHOP = """
create table orders (id int generated always as identity primary key, total numeric(10, 2), paid bool default false);
create table notes (text text);
"""
"""What the database `shop` has on a page that is about your own Postgres."""
STATE = """
select rolname from pg_roles union all select datname from pg_database
union all select slot_name from pg_replication_slots union all select pubname from pg_publication order by 1
"""
EXAMPLE_IS_READ = 'until [ "$(pipeline backfill list | grep -c complete)" = 3 ]; do sleep 0.2; done'
_SERVE = re.compile(r"(\w+=\S+ )*pipeline serve\b(?!.* --help)")
_ONLY_READS = re.compile(
    r"\bselect\b|psql pipeline -At|\bpipeline (status|check|verify|\w+(-\w+)? list)\b|\bcurl\b", re.I
)
_WRITES = re.compile(
    r"\b(insert|update|delete|create|drop|alter|truncate|receive|acknowledge)\b| -X |--json|--data", re.I
)
_ASKS_FOR_A_PASSWORD = r"\password"
"""psql reads it from the terminal itself; the Postgres of a test lets everyone in."""


class PageError(AssertionError):
    """A page that shows something else than what happens."""


@dataclass(frozen=True)
class Installation:
    """The programs that a page runs. `bin` is the folder of `pipeline` and `python`."""

    bin: Path = field(default_factory=lambda: Path(sys.executable).parent)
    wheel: Path | None = None
    """What `pip install .` installs; None if `pip install` and `make demo` are left out."""
    checkout: Path | None = None
    """Where `make` runs."""
    quick: Path | None = None
    """A folder whose `pipeline` starts sooner than that of `bin`."""


@contextmanager
def running(page: Path, installation: Installation) -> Iterator[PageRun]:
    """A fresh folder for one page; everything that runs there ends with the block."""
    with ExitStack() as stack:
        work = Path(tempfile.mkdtemp(prefix="page-"))
        stack.callback(_remove, work)
        (work / "home").mkdir()
        (work / "state").mkdir()
        folders = (installation.quick, installation.bin, os.environ["PATH"], wheel_bin_dir())
        path = os.pathsep.join(str(each) for each in folders if each)
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PIPELINE_", "PG", "PYTHON", "COLUMNS", "LINES"))
        }
        environment = {**kept, "PATH": path, "NO_COLOR": "1", "PAGER": "cat", "PGCONNECT_TIMEOUT": "10"}
        terminals = TerminalSet(work / "home", environment, work / "state")
        stack.callback(terminals.close)
        yield PageRun(page, installation, terminals, stack)


class PageRun:
    """One page from its beginning to its end."""

    def __init__(self, page: Path, installation: Installation, terminals: TerminalSet, stack: ExitStack) -> None:
        self.left_out: list[str] = []
        self._page, self._installation, self._terminals, self._stack = page, installation, terminals, stack
        self._ports = {port: _free_port() for port in ("12312", "50051", "8000")}
        terminals.environment |= {
            "PIPELINE_HTTP_PORT": self._ports["12312"],
            "PIPELINE_GRPC_PORT": self._ports["50051"],
        }
        self._own: Cluster | None = None
        self._before: list[str] = []
        self._printed = ""

    def run(self) -> None:
        """Run all steps; raise PageError at the first one that does not do what the page shows."""
        found = list(steps(self._page.read_text()))
        for step, following in zip(found, [*found[1:], None], strict=True):
            try:
                if isinstance(step, PageMark):
                    self._obey(step)
                else:
                    self._run_block(step, following)
            except PageError:
                raise
            except Exception as error:
                raise PageError(f"{self._where(step.line)}: {type(error).__name__}: {error}") from error

    def _where(self, line: int) -> str:
        return f"{self._page.relative_to(ROOT)}:{line}"

    def _obey(self, mark: PageMark) -> None:
        if mark.kind == "terminal":
            self._terminals.name = mark.value
        elif mark.kind == "press":
            self._printed = self._terminals.stop()
        elif mark.kind == "check":
            assert self._own is not None
            if (now := _state(self._own)) != self._before:
                raise PageError(f"{self._where(mark.line)}: left or missing: {set(now) ^ set(self._before)}")
        else:
            self._give(mark)

    def _give(self, mark: PageMark) -> None:
        if mark.value == "own Postgres":
            self._own = self._stack.enter_context(_own_postgres())
            self._before = _state(self._own)
            address = conninfo_to_dict(self._own.tcp_dsn("shop"))
            self._terminals.environment |= {
                "PGHOSTADDR": str(address["host"]),
                "PGPORT": str(address["port"]),
                "PGUSER": "me",
            }
        elif mark.value == "a bucket":
            self._terminals.environment["AWS_ENDPOINT_URL"] = self._stack.enter_context(_object_store())
        elif mark.value == "a Spark cluster":
            self._ports["7077"] = self._stack.enter_context(_spark_cluster())
            self._terminals.environment["PYSPARK_PYTHON"] = str(self._installation.bin / "python")
        elif mark.value == "the example":
            self._wait_ready(self._terminals.start("pipeline serve --example"), [])
            self._type(ShownCommand(mark.line, EXAMPLE_IS_READ, []), {})
        else:
            self._type(ShownCommand(mark.line, mark.value.removeprefix("$ "), []), {})

    def _run_block(self, block: FencedBlock, following: PageMark | FencedBlock | None) -> None:
        if "not run" in block.marks:
            self.left_out.append(f"{self._where(block.line)}: {block.marks['not run']}")
        elif block.file:
            (self._terminals.folder / block.file).write_text(self._local(block.text))
        elif block.language == "console":
            found = commands(block)
            for command in found:
                self._type(command, block.marks if command is found[-1] else {"type": block.marks.get("type", "")})
        elif block.language == "text" and block.follows:
            if wrong := difference(block.text.splitlines(), self._printed):
                raise PageError(f"{self._where(block.line)}: it printed something else:\n{wrong}")
        elif line := self._program(block):
            has_output = isinstance(following, FencedBlock) and following.language == "text" and following.follows
            shown = following.text.splitlines() if isinstance(following, FencedBlock) and has_output else []
            self._succeed(ShownCommand(block.line, line, shown), block.marks, block.text)

    def _program(self, block: FencedBlock) -> str | None:
        file = f".block-{block.line}"
        line = None
        if block.language == "sql":
            name = block.marks.get("in", "pipeline")
            own = f"psql -d {'shop' if name == 'source' else name}"
            line = f"{own if self._own else f'pipeline psql {name}'} -v ON_ERROR_STOP=1 -f"
        elif block.language in ("python", "sh", "bash"):
            line = "python" if block.language == "python" else "bash -eu"
        if line:
            (self._terminals.folder / file).write_text(self._local(block.text))
        return f"{line} {self._terminals.folder / file}" if line else None

    def _type(self, command: ShownCommand, marks: Mapping[str, str]) -> None:
        if _ASKS_FOR_A_PASSWORD in command.text:
            return
        if command.text.startswith(("pip install", "make ")) and self._installation.wheel is None:
            return
        if "stays" in marks or (_SERVE.match(command.text) and "exits" not in marks):
            self._wait_ready(self._terminals.start(self._local(command.text)), command.shown, command.line)
        else:
            self._succeed(command, marks)

    def _succeed(self, command: ShownCommand, marks: Mapping[str, str], program: str = "") -> None:
        """Run it until it prints what the page shows, if it only reads or finds no row; else once.

        `program`: the text that it runs.
        """
        said = program or command.text
        again = bool(_ONLY_READS.search(said)) and not _WRITES.search(said)
        text, until = self._local(command.text), time.monotonic() + PATIENCE / 6
        timeout = MAKE_TIMEOUT if text.startswith("make ") else COMMAND_TIMEOUT
        while True:
            status, self._printed = self._terminals.run(text, marks.get("type"), timeout)
            wrong = difference(command.shown, self._printed)
            as_shown = status == int(marks.get("exits", 0))
            if as_shown and wrong is None:
                return
            if not (again or "(0 rows)" in self._printed) or time.monotonic() > until:
                why = wrong if as_shown else f"exit status {status}\n{self._printed}"
                raise PageError(f"{self._where(command.line)}: $ {command.text}\n{why}\n{self._servers()}")
            time.sleep(0.3)

    def _wait_ready(self, program: RunningProgram, shown: list[str], line: int = 1) -> None:
        """Wait until it has printed what the page shows; a server is ready, too, unless the page shows a standby."""
        until = time.monotonic() + PATIENCE
        wrong: str | None = "not ready"
        stands_by = any("standing by" in line for line in shown)
        while time.monotonic() < until and program.process.poll() is None:
            wrong = difference([*shown, "…"] if shown else [], program.output())
            if wrong is None and (stands_by or not _SERVE.match(program.command) or self._is_ready()):
                return
            time.sleep(0.1)
        raise PageError(f"{self._where(line)}: $ {program.command}\n{wrong}\n{program.output()}")

    def _is_ready(self) -> bool:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self._ports['12312']}/readyz", timeout=5):
            return True
        return False

    def _local(self, text: str) -> str:
        """The same text with free ports for the usual ones, the wheel for `.`, and a checkout for `make`."""
        for port, free in self._ports.items():
            text = re.sub(rf"(?<=[: ]){port}\b", free, text)
        if self._installation.wheel and text.startswith("pip install"):
            text = re.sub(r"(?<=[ '\"])(\.|wal-pipeline-server)(?=$|[\[ '\"])", str(self._installation.wheel), text)
            text = re.sub(r"^pip install", f"pip install -qq --constraint {ROOT / 'constraints.txt'}", text)
        if self._installation.checkout and text.startswith("make "):
            text = f"make -C {self._installation.checkout} --no-print-directory {text.removeprefix('make ')}"
        return text

    def _servers(self) -> str:
        return "\n".join(f"{each.command} printed:\n{each.output()}" for each in self._terminals.staying)


@contextmanager
def _own_postgres() -> Iterator[Cluster]:
    """A Postgres with the administrator `me` and the database `shop`."""
    with temporary_server(MAJORS[0]) as cluster:
        with cluster.connect() as administrator:
            administrator.execute("create role me superuser login")
            administrator.execute("create database shop owner me")
        with cluster.connect("shop") as shop:
            shop.execute("set session authorization me")
            shop.execute(SHOP)
        yield cluster


@contextmanager
def _object_store() -> Iterator[str]:
    """A store that accepts any credentials, with the empty bucket `lakes`; yields its address."""
    from tests.fixtures.object_store import CREDENTIALS, object_store

    os.environ.update(CREDENTIALS)
    with object_store() as store:
        yield store.endpoint


@contextmanager
def _spark_cluster() -> Iterator[str]:
    """A standalone master with two workers; yields the port of the master."""
    from tests.fixtures.standalone import running as running_cluster

    with running_cluster() as cluster:
        yield cluster.master.rpartition(":")[2]


def _state(cluster: Cluster) -> list[str]:
    with cluster.connect("shop") as connection:
        return [name for (name,) in connection.execute(STATE).fetchall()]


def _free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return str(probe.getsockname()[1])


def _remove(work: Path) -> None:
    for found in work.glob("**/.s.PGSQL.*[0-9]"):
        EmbeddedServer(found.parent, port=int(found.suffix[1:])).stop("immediate")
    shutil.rmtree(work, ignore_errors=True)
