"""The same in Node, by the library that walstream's clients use there."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipeline.rpc import protos
from tests.fixtures.browsers import required
from tests.fixtures.grpc_place import Place
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.xdist_group("walstream")
PROGRAM = Path(__file__).with_name("client.mjs")
PROTO = Path(protos.__path__[0]) / "plugin.proto"


class Node:
    """The client while it runs."""

    def __init__(self, output: Path, process: subprocess.Popen[bytes]) -> None:
        self._output = output
        self._process = process

    @property
    def lines(self) -> list[str]:
        return self._output.read_text().splitlines()

    def printed(self, *lines: str) -> None:
        """Wait until it has printed these, for as long as it prints something else in the meantime."""

        def check() -> None:
            assert self._process.poll() is None, self.lines
            assert not set(lines) - set(self.lines), self.lines

        while True:
            before = len(self.lines)
            try:
                return eventually(check)
            except AssertionError:
                if len(self.lines) == before:
                    raise


@contextmanager
def client(place: Place, modules: Path, folder: Path, longs: str = "String", again: float = 0.2) -> Iterator[Node]:
    command = [required("node"), str(PROGRAM), str(modules), str(PROTO), place.address, str(int(1000 * again)), longs]
    output = folder / "node.log"
    with (
        output.open("wb") as file,
        subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL) as process,
    ):
        try:
            yield Node(output, process)
        finally:
            process.kill()


@pytest.mark.parametrize("longs", ["String", "Number"])
def test_it_prints_the_four_kinds_and_acknowledges(
    moving: Place, node_modules: Path, tmp_path: Path, longs: str
) -> None:
    table = moving.table("id int primary key, note text")
    with client(moving, node_modules, tmp_path, longs) as node:
        node.printed("Headers")
        moving.run(
            f"insert into {table} values (1, 'ä')",
            f"update {table} set note = '007'",
            f"delete from {table}",
            f"truncate {table}",
        )
        lines = [
            f'INSERT public.{table}: {{"id":1,"note":"ä"}}',
            f'UPDATE public.{table}: {{"id":1,"note":"007"}}',
            f'DELETE public.{table}: {{"id":1}}',
            f"TRUNCATE public.{table}",
        ]
        node.printed(*lines)
        assert [line for line in node.lines if table in line] == lines
        moving.settled()


def test_it_comes_back_after_the_end_of_the_role(place: Place, node_modules: Path, tmp_path: Path) -> None:
    table = place.table()
    with client(place, node_modules, tmp_path) as node:
        place.run(f"insert into {table} values (1)")
        node.printed(f'INSERT public.{table}: {{"id":1}}')
        place.kill_role()
        place.run(f"insert into {table} values (2)")
        node.printed(f'INSERT public.{table}: {{"id":2}}')
        assert [line for line in node.lines if line.startswith("Stream error: 14")]


def test_a_large_transaction_and_an_oversize_row_keep_it_up(moving: Place, node_modules: Path, tmp_path: Path) -> None:
    table = moving.table("id int primary key, long text")
    with client(moving, node_modules, tmp_path) as node:
        node.printed("Headers")
        moving.run(
            f"insert into {table} select n, 'x' from generate_series(1, 1000) n",
            f"insert into {table} values (0, repeat('x', 5000000))",
            f"insert into {table} values (-1, null)",
        )
        node.printed(f'INSERT public.{table}: {{"id":0}}', f'INSERT public.{table}: {{"id":-1,"long":null}}')
        assert len([line for line in node.lines if table in line]) == 1_002
        moving.settled()
        assert "Stream ended" not in node.lines
