"""What a drain costs: CPU seconds and peak memory of our processes, and of what Postgres does for them."""

from __future__ import annotations

from psycopg import Connection

from tests.benchmarks import processes
from tests.benchmarks.server import PipelineServer
from tests.fixtures.postgres import Cluster

_ROLES = {"worker": "replication", "shuffler": "shuffle"}
_BACKENDS = {"pipeline staging": "staging backend", "pipeline shuffle": "shuffler backend"}


def postmaster(cluster: Cluster) -> int:
    """The pid that all of Postgres descends from."""
    assert cluster.server is not None
    return int((cluster.server.data / "postmaster.pid").read_text().split()[0])


class Usage:
    """CPU counts from when this was made, memory from the start of a process."""

    def __init__(self, server: PipelineServer, database: Connection, walsender: int) -> None:
        self._postmaster = postmaster(server.cluster)
        self._server, self._database, self._walsender = server, database, walsender
        pids = [*processes.children(server.process.pid), *processes.children(self._postmaster)]
        self._before = {pid: processes.cpu_seconds(pid) for pid in pids}
        self._tree_before = processes.tree_cpu_seconds(self._postmaster)

    def cpu(self) -> dict[str, float]:
        """By process; last what Postgres did beside: checkpoints, vacuum, WAL writer, our polling."""
        ours = {name: self._since(self._server.role(role)) for name, role in _ROLES.items()}
        query = "select application_name, pid from pg_stat_activity where application_name = any(%s)"
        pids = {_BACKENDS[name]: pid for name, pid in self._database.execute(query, (list(_BACKENDS),)).fetchall()}
        backends = {"walsender": self._since(self._walsender)}
        backends |= {name: self._since(pids[name]) for name in _BACKENDS.values() if name in pids}
        rest = processes.tree_cpu_seconds(self._postmaster) - self._tree_before - sum(backends.values())
        return {**ours, **backends, "rest of Postgres": max(0.0, rest)}  # a clock tick is 10 ms

    def megabytes(self) -> dict[str, float]:
        """Peak resident memory of our two movers."""
        return {name: processes.peak_megabytes(self._server.role(role)) for name, role in _ROLES.items()}

    def _since(self, pid: int) -> float:
        return processes.cpu_seconds(pid) - self._before.get(pid, 0.0)
