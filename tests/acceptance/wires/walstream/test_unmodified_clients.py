"""walstream's own clients as they are, over restarts of the server and of themselves: WIRE_MINUTES, ten by itself.

WALSTREAM_FOLDER is a checkout of walstream, whose examples speak to 127.0.0.1:50051 and nothing else. Those that this
machine can build take part. Run it with `-s` to see the figures.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

from tests.fixtures.background import BackgroundThread
from tests.fixtures.grpc_place import Place, place_of
from tests.fixtures.postgres import Cluster
from tests.fixtures.waiting import eventually

MINUTES = float(os.environ.get("WIRE_MINUTES", "10"))
PORT = 50051
"""What the clients have in their code."""
LONG_STOP = 70.0
CATCH_UP_SECONDS = 180.0
_EVENT = re.compile(r'INSERT public\.t: \{"id":(\d+)\}')
GO_PATH = Path("/usr/share/gocode")
"""Where Debian's packages put Go's libraries."""


@dataclass
class Original:
    """One client that is started again and again: what it has printed, in all of its lives."""

    name: str
    command: list[str]
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)
    lives: list[Path] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None
    away_until: float = 0.0

    def start(self) -> None:
        """Begin another life."""
        output = self.folder / f"{self.name}-{len(self.lives)}.log"
        self.lives.append(output)
        environment = {**os.environ, **self.environment}
        with output.open("wb") as file:
            self.process = subprocess.Popen(
                self.command, cwd=self.folder, env=environment, stdout=file, stderr=subprocess.STDOUT
            )

    def kill(self, signal_number: int = signal.SIGKILL) -> None:
        """End this life."""
        if self.process is not None:
            self.process.send_signal(signal_number)
            self.process.wait(60)
            self.process = None

    def leave(self, seconds: float) -> None:
        """Be killed or stopped, and come back after this many seconds."""
        if self.process is not None:
            self.kill(random.choice([signal.SIGKILL, signal.SIGTERM]))
            self.away_until = time.monotonic() + seconds

    def come_back(self, *, at_once: bool = False) -> None:
        """Begin another life if it is time."""
        if self.process is None and (at_once or self.away_until < time.monotonic()):
            self.start()

    def printed(self, life: int | None = None) -> list[int]:
        """The ids that it has printed, in this life or in all."""
        lives = self.lives if life is None else [self.lives[life]]
        return [int(number) for each in lives for number in _EVENT.findall(each.read_text())]


class Writer(BackgroundThread):
    """A hundred transactions a second, one of ten with ten rows. `last`: the newest id that is committed."""

    def __init__(self, dsn: str) -> None:
        super().__init__()
        self.last = 0
        self._dsn = dsn

    def work(self) -> None:
        with psycopg.connect(self._dsn, autocommit=True) as source:
            while not self.stopped.wait(0.01):
                upto = self.last + (10 if random.random() < 0.1 else 1)
                source.execute("insert into t select generate_series(%s::int, %s)", [self.last + 1, upto])
                self.last = upto


def _python(folder: Path, home: Path) -> list[str]:
    proto = folder / "proto"
    command = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        f"--proto_path={proto}",
        "--python_out=.",
        "--grpc_python_out=.",
    ]
    subprocess.run([*command, str(proto / "plugin.proto")], cwd=home, check=True)
    return [sys.executable, "-u", "main.py"]


def _javascript(folder: Path, home: Path) -> list[str] | None:
    if not shutil.which("npm"):
        return None
    if not (home / "node_modules").exists():
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--loglevel=error"], cwd=home, check=True)
    return ["node", "index.js"]


def _go(folder: Path, home: Path) -> list[str] | None:
    """With Debian's golang-go, golang-google-grpc-dev, protobuf-compiler and protoc-gen-go-1-3; None without these."""
    if not all(map(shutil.which, ("go", "protoc", "protoc-gen-go"))):
        return None
    module = home / "go/src/pluginclient"
    generated = module / "generated/plugin"
    generated.mkdir(parents=True)
    shutil.copy(home / "main.go", module)
    proto = folder / "proto"
    options = f"plugins=grpc,import_path=plugin:{generated}"  # later ones write what Debian's libraries cannot read
    subprocess.run(["protoc", f"--proto_path={proto}", f"--go_out={options}", str(proto / "plugin.proto")], check=False)
    environment = {**os.environ, "GO111MODULE": "off", "GOPATH": f"{home / 'go'}:{GO_PATH}"}
    built = subprocess.run(["go", "build", "-o", str(home / "client")], cwd=module, check=False, env=environment)
    return [str(home / "client")] if built.returncode == 0 else None


BUILDERS = {"python": _python, "js": _javascript, "go": _go}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the checkout."""
    given = os.environ.get("WALSTREAM_FOLDER")
    if not given:
        pytest.skip("WALSTREAM_FOLDER names no checkout of walstream")
    with socket.socket() as taken:
        if taken.connect_ex(("127.0.0.1", PORT)) == 0:
            pytest.skip(f"port {PORT}, which the clients have in their code, is taken")
    return Path(shutil.copytree(given, tmp_path / "walstream", ignore=shutil.ignore_patterns(".git")))


@pytest.fixture
def clients(folder: Path) -> Iterator[list[Original]]:
    """Two of each language that can be built here."""
    made: list[Original] = []
    for language, build in BUILDERS.items():
        home = folder / f"examples/{language}-client"
        if (command := build(folder, home)) is not None:
            made += [Original(f"{language}{number}", command, home) for number in range(2)]
    yield made
    for client in made:
        with suppress(ProcessLookupError):
            client.kill()


@pytest.fixture
def own(folder: Path, cluster: Cluster, tmp_path: Path) -> Iterator[Place]:
    with place_of(cluster, tmp_path, wires="walstream", grpc_port=PORT, log_level="info") as place:
        place.together("create table t (id int primary key)", "alter publication pipeline add table t")
        yield place


@pytest.mark.long
@pytest.mark.timeout(60 * MINUTES + 900)
def test_no_client_that_was_away_for_less_than_a_minute_lacks_an_event(own: Place, clients: list[Original]) -> None:
    counts: Counter[str] = Counter()
    for client in clients:
        client.start()
    eventually(lambda: own.number("select count(*) from pipeline.walstream_sessions") == len(clients))
    with Writer(own.source.info.dsn) as writer:
        _disturb(own, clients, counts)
        _caught_up(clients, writer)
    last = writer.last
    _caught_up(clients, writer)
    for client in clients:
        printed = client.printed()
        lacks, again = last - len({*printed}), len(printed) - len({*printed})
        print(f"{client.name}: {len(client.lives)} lives, {len(printed):,} events, {again:,} again, lacks {lacks}")
    print(f"{MINUTES:g} minutes, {last:,} events: {dict(counts)}")
    for end in ("terminate", "kill"):
        _nothing_comes_again(own, clients, last, end)
        last += 1


def _disturb(place: Place, clients: list[Original], counts: Counter[str]) -> None:
    """Stop and kill the server, its role and clients; one stop, in the middle, lasts for longer than a hold."""
    began = time.monotonic()
    while (now := time.monotonic() - began) < 60 * MINUTES:
        time.sleep(random.uniform(0.5, 6))
        if now > 30 * MINUTES and not counts["long stop"]:
            counts["long stop"] += 1
            _restart(place, "terminate", LONG_STOP)
        what = random.choice(["terminate", "kill", "role", *["client"] * 6])
        counts[what] += 1
        if what == "client":
            random.choice(clients).leave(random.choice([0, 1, 5, 20]))
        elif what == "role":
            place.kill_role()
        else:
            _restart(place, what, random.choice([0, 0, 1, 5]))
        for client in clients:
            client.come_back()
    for client in clients:
        client.come_back(at_once=True)


def _restart(place: Place, how: str, seconds: float) -> None:
    if how == "terminate":
        assert place.server.stop() == 0
    else:
        place.server.kill()
    time.sleep(seconds)
    place.server = place.start(**place.settings)


def _caught_up(clients: list[Original], writer: Writer) -> None:
    """Wait until each client has printed every event that is committed by now."""
    last = writer.last
    for client in clients:
        assert client.process is not None
        assert client.process.poll() is None, client.lives[-1].read_text()[-2000:]
        wanted = {*range(1, last + 1)}

        def lacks(client: Original = client, wanted: set[int] = wanted) -> None:
            missing = wanted - {*client.printed()}
            assert not missing, f"{client.name} lacks {len(missing)}: {sorted(missing)[:20]}"

        eventually(lacks, CATCH_UP_SECONDS)


def _nothing_comes_again(place: Place, clients: list[Original], last: int, end: str) -> None:
    """All clients have acknowledged all; the server ends more than a second later, and all holds end after that."""
    time.sleep(2)
    with ExitStack() as stack:
        if end == "kill":
            place.server.kill()
        for client in clients:
            stack.callback(client.start)
            client.kill()
        if end != "kill":
            assert place.server.stop() == 0
        place.server = place.start(**place.settings)
        eventually(lambda: place.number("select count(*) from pipeline.walstream_sessions") == 0, 150)
    eventually(lambda: place.number("select count(*) from pipeline.walstream_sessions") == len(clients))
    place.run(f"insert into t values ({last + 1})")
    for client in clients:

        def comes(client: Original = client) -> None:
            assert client.printed(-1), f"{client.name} gets nothing: {client.lives[-1].read_text()[-500:]}"

        eventually(comes)
        assert client.printed(-1) == [last + 1], f"{client.name} got again what all had acknowledged"
    print(f"after {end}: no event came again")
