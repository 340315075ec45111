"""What a run costs: CPU seconds and peak memory of our processes, and of what Postgres does for them."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict

from tests.benchmarks import processes
from tests.benchmarks.backlog import SOURCE_DATABASE
from tests.benchmarks.server import DATABASE, PipelineServer
from tests.fixtures.postgres import Cluster
from tests.fixtures.processes import own_megabytes, peak_megabytes, title

WORKER, HELPERS, SHUFFLER, WALSENDER = "worker", "helpers", "shuffler", "walsender"
READERS, READING, RANGES = "snapshot workers", "reading backends", "range backends"
"""Who reads tables, their sessions at the source, and those that take and stage ranges."""
INTERVAL = 0.2
"""Seconds between two looks; what a process used after the last look at it is lost."""
_ROLES = {"pipeline: replication": WORKER, "pipeline: shuffle": SHUFFLER, "pipeline: snapshot worker": READERS}
_REST, REST_OF_POSTGRES = "rest of the server", "rest of Postgres"
OF_SERVER = (WORKER, HELPERS, READERS, SHUFFLER, _REST)
_THEIRS = (WALSENDER, READING, "staging backend", RANGES, "shuffler backend")
_BACKENDS = f"""
    select pid, case when backend_type = 'walsender' then 'walsender'
        when application_name = 'pipeline staging' then 'staging backend'
        when application_name = 'pipeline shuffle' then 'shuffler backend'
        when application_name = 'pipeline snapshot worker' and datname = '{SOURCE_DATABASE}' then '{READING}'
        else '{RANGES}' end
    from pg_stat_activity
    where backend_type = 'walsender' or application_name in ('pipeline staging', 'pipeline shuffle')
        or application_name like 'pipeline snapshot worker%'
"""


def postmaster(cluster: Cluster) -> int:
    """The pid that all of Postgres descends from."""
    assert cluster.server is not None
    return int((cluster.server.data / "postmaster.pid").read_text().split()[0])


class Usage(threading.Thread):
    """Looks at the processes of a server that has started, for as long as the `with` block.

    Helpers and their walsenders come and go meanwhile, so those of one name count together.
    """

    def __init__(self, server: PipelineServer) -> None:
        super().__init__(name="usage", daemon=True)
        self._server = server
        self._postmasters = {postmaster(cluster) for cluster in (server.cluster, server.databases)}
        self._looking = [server.cluster.connect(SOURCE_DATABASE), server.databases.connect(DATABASE)]
        self._ending = threading.Event()
        self._trees_before = sum(map(processes.tree_cpu_seconds, self._postmasters))
        self._family = processes.Family(server.process.pid)
        self._names: dict[int, str] = {}
        self._before: dict[int, float] = {}
        self._latest: dict[int, float] = {}
        self._megabytes: defaultdict[str, float] = defaultdict(float)
        self._most: Counter[str] = Counter()
        self._look()
        self._before = dict(self._latest)  # who starts later began at 0

    def __enter__(self) -> Usage:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def run(self) -> None:
        while not self._ending.wait(INTERVAL):
            self._look()

    def cpu(self) -> dict[str, float]:
        """CPU seconds since the beginning, by process; ends the looking.

        Last comes what Postgres did beside: checkpoints, vacuum, WAL writer, our polling, and other writers' work.
        """
        self._end()
        used: defaultdict[str, float] = defaultdict(float)
        for pid, name in self._names.items():
            used[name] += self._latest[pid] - self._before.get(pid, 0.0)
        theirs = sum(used[name] for name in _THEIRS)
        rest = sum(map(processes.tree_cpu_seconds, self._postmasters)) - self._trees_before - theirs
        # A clock tick is 10 ms, so that a small rest may come out below 0.
        return {name: used[name] for name in (*OF_SERVER, *_THEIRS) if used[name]} | {REST_OF_POSTGRES: max(0.0, rest)}

    def megabytes(self) -> dict[str, float]:
        """Peak memory of one process of each name: resident; without what is shared for those of Postgres."""
        return {name: self._megabytes[name] for name in (*OF_SERVER, *_THEIRS) if name in self._megabytes}

    def most(self, name: str) -> int:
        """How many processes of that name there were at once."""
        return self._most[name]

    def _end(self) -> None:
        if not self._ending.is_set():
            self._ending.set()
            self.join()
            self._look()
            for connection in self._looking:
                connection.close()

    def _look(self) -> None:
        found = {pid: _role(title(pid)) for pid in self._family.members()}
        backends: dict[int, str] = {}
        for connection in self._looking:
            backends |= dict(connection.execute(_BACKENDS).fetchall())
        for pid, name in (found | backends).items():
            if seconds := processes.cpu_seconds(pid):
                self._names[pid], self._latest[pid] = name, seconds
                size = own_megabytes(pid) if pid in backends else peak_megabytes(pid)
                self._megabytes[name] = max(self._megabytes[name], size)
        self._most |= Counter((found | backends).values())


def _role(title: str) -> str:
    return HELPERS if title.startswith("pipeline: catch-up ") else _ROLES.get(title, _REST)
