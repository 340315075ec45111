"""A thousand hostile clients at a real server: `python -m tests.torture.hostile_clients [SECONDS]`.

All load is on 127.0.0.1 and ends by itself. Exit status 1 if the server kept others waiting or took too much memory.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from tests.fixtures.postgres import Cluster, free_port, temporary_server, unique
from tests.fixtures.server import COMMAND, ROOT, environment
from tests.fixtures.waiting import eventually
from tests.torture.hostile_clients.watching import Watched, total

TOKEN = "the token of the hostile clients' trial"
CLIENTS, NOTIFICATIONS = 1_000, 100
WARM_SECONDS, BEFORE_SECONDS, AFTER_SECONDS = 15.0, 20.0, 90.0
"""`AFTER_SECONDS`: how long the trial waits for memory to shrink; gRPC ends idle connections after 65 s."""
MOST_HEALTH_SECONDS, MOST_LATENCY, MOST_MEMORY, MOST_KEPT_MEMORY = 1.0, 2.0, 100.0, 20.0


class Trial:
    """The server, its consumer, and the clients, once."""

    def __init__(self, cluster: Cluster, folder: Path, source_dsn: str, database_dsn: str) -> None:
        self._folder, self._source_dsn, self._database_dsn = folder, source_dsn, database_dsn
        self._http_port, self._grpc_port = free_port(), free_port()
        self._role = unique("stranger")
        cluster.connect().execute(f"create role {self._role} login").connection.close()
        self.broken: list[str] = []

    def run(self, seconds: float, clients: int) -> bool:
        """True if everything held."""
        with psycopg.connect(self._source_dsn, autocommit=True) as source:
            source.execute("create table watched (id integer primary key)")
        server = self._start()
        try:
            url = f"http://127.0.0.1:{self._http_port}"
            with Watched(url, TOKEN, self._source_dsn, server.pid) as watched:
                eventually(lambda: watched.latencies, timeout=120)
                time.sleep(WARM_SECONDS)
                self._judge(watched, seconds, clients)
            print(*watched.errors[:20], sep="\n")
            self._require("server runs", server.poll() is None)
        finally:
            server.terminate()
            server.wait(120)
        return not self.broken

    def _start(self) -> subprocess.Popen[bytes]:
        settings = {
            "source_dsn": self._source_dsn, "database_dsn": self._database_dsn, "slot": unique("slot"),
            "api_token": TOKEN, "http_port": self._http_port, "grpc_port": self._grpc_port,
            "wires": "pgdeltastream", "open_wires": "pgdeltastream",
        }  # fmt: skip
        with (self._folder / "serve.log").open("wb") as log:
            return subprocess.Popen(
                [*COMMAND, "serve"], cwd=self._folder, env=environment({**settings}),
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def _judge(self, watched: Watched, seconds: float, clients: int) -> None:
        calm = time.monotonic()
        time.sleep(BEFORE_SECONDS)
        began = time.monotonic()
        flood = self._flood(seconds, clients)
        ended = time.monotonic()
        before = total(watched.most_memory(calm, began))
        print(json.dumps(flood["counts"], indent=1, sort_keys=True))
        share, load = 100 * flood["processor_share"], os.getloadavg()[0]
        print(f"The clients took {share:.0f} % of a processor; the load of this machine is {load:.0f}.")
        self._require_health("before", watched.slowest_health(calm, began))
        self._require_health("with the clients", watched.slowest_health(began, ended))
        usual, latency = watched.latency(calm, began), watched.latency(began, ended)
        sentence = f"The consumer's median latency was {1e3 * latency:.0f} ms; before {1e3 * usual:.0f} ms."
        self._require(sentence, latency <= MOST_LATENCY * usual)
        found = watched.most_memory(began, ended)
        sentence = f"Memory grew by {total(found) - before:.0f} MB, from {before:.0f} MB."
        self._require(sentence, total(found) - before < MOST_MEMORY)
        print({name: round(size) for name, size in found.items()})
        self._require_memory_back(watched, before)

    def _require_memory_back(self, watched: Watched, before: float) -> None:
        until = time.monotonic() + AFTER_SECONDS
        while (kept := total(watched.memory[-1][1]) - before) > MOST_KEPT_MEMORY and time.monotonic() < until:
            time.sleep(1)
        self._require(f"Afterwards memory was {kept:.0f} MB above.", kept <= MOST_KEPT_MEMORY)

    def _flood(self, seconds: float, clients: int) -> dict[str, Any]:
        """The clients' process until its end, and meanwhile NOTIFY as a role that may only connect."""
        given = {"seconds": seconds, "clients": clients, "token": TOKEN,
                 "http_port": self._http_port, "grpc_port": self._grpc_port}  # fmt: skip
        command = [sys.executable, "-m", "tests.torture.hostile_clients.flood", json.dumps(given)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as flood:
            for _ in range(NOTIFICATIONS):
                with psycopg.connect(make_conninfo(self._database_dsn, user=self._role), autocommit=True) as stranger:
                    stranger.execute("select pg_notify('sequin_events', repeat('[', 7000))")
                time.sleep(seconds / NOTIFICATIONS)
            said, _ = flood.communicate()
        found: dict[str, Any] = json.loads(said)
        return {**found, "counts": Counter(found["counts"])}

    def _require_health(self, when: str, took: float) -> None:
        self._require(f"/healthz took at most {1e3 * took:.0f} ms {when}.", took <= MOST_HEALTH_SECONDS)

    def _require(self, sentence: str, holds: bool) -> None:
        print("" if holds else "BROKEN: ", sentence, sep="", flush=True)
        if not holds:
            self.broken.append(sentence)


def main() -> int:
    """One trial on its own Postgres."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seconds", type=float, nargs="?", default=300.0)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        temporary_server(18) as cluster,
        cluster.database("source") as source_dsn,
        cluster.database("events", cluster.template) as database_dsn,
    ):
        holds = Trial(cluster, Path(folder), source_dsn, database_dsn).run(given.seconds, given.clients)
        lines = (Path(folder) / "serve.log").read_text(errors="replace").splitlines()
        print(*(line for line in lines if " INFO " not in line), sep="\n")
    return 0 if holds else 1
