"""The hosts of a DSN that cannot tell whether a failover leaves a gap."""

from __future__ import annotations

from collections.abc import Callable

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pipeline.capture.source import failover
from tests.fixtures.postgres import Cluster, free_port

Clusters = Callable[[int], Cluster]


def report(*dsns: str) -> tuple[bool | None, list[str]]:
    hosts = [conninfo_to_dict(dsn) for dsn in dsns]
    lists = {name: ",".join(str(host[name]) for host in hosts) for name in ("host", "port")}
    found = failover.read(make_conninfo(dsns[0], **lists), "pipeline")
    assert found is not None
    return found.ready, [problem.text for problem in found.problems]


def test_one_host_is_not_asked(cluster: Cluster) -> None:
    assert failover.read(cluster.tcp_dsn("postgres"), "pipeline") is None


def test_a_host_that_is_down_is_named_within_a_second(cluster: Cluster) -> None:
    down = free_port()
    ready, [problem] = report(cluster.tcp_dsn("postgres"), make_conninfo(host="127.0.0.1", port=down))
    assert (ready, problem.startswith(f"127.0.0.1:{down}: source")) == (None, True)


def test_another_cluster_is_named_and_a_second_name_is_no_finding(clusters: Clusters) -> None:
    ours, other = (clusters(major).tcp_dsn("postgres") for major in (18, 15))
    other_port = conninfo_to_dict(other)["port"]
    assert report(ours, other) == (None, [f"127.0.0.1:{other_port} belongs to another cluster"])
    assert report(ours, make_conninfo(ours, host="localhost")) == (None, [])
