"""The demo's followers: a separate Postgres for each, on the same machine."""

from __future__ import annotations

import shutil
from pathlib import Path

from pipeline.config.settings import Config
from pipeline.followers import registry
from pipeline.followers.operating import adding
from pipeline.followers.registry import FollowerOptions
from pipeline.postgres import connections, migrations
from pipeline.postgres.connections import Connection
from pipeline.postgres.embedded import EmbeddedServer

DATABASE, ROLE = "shop", "pipeline_follower"
_SETTINGS = {"wal_level": "replica", "max_wal_size": "256MB", "shared_buffers": "32MB"}
_CREATE_FOLLOWER = """\
create role pipeline_follower login;
alter database shop owner to pipeline_follower;
grant set on parameter session_replication_role to pipeline_follower
"""
"""The role of a follower: it makes, alters and writes the tables, and can do nothing else."""


class FollowerCluster:
    """The cluster of one follower."""

    def __init__(self, folder: Path, number: int) -> None:
        self.name = f"follower-{number}"
        self._server = EmbeddedServer(folder / self.name, settings=_SETTINGS)

    @property
    def dsn(self) -> str:
        """The DSN of its database, as the role of the follower."""
        return self._server.dsn(DATABASE, ROLE)

    def create(self) -> None:
        """Create the cluster, with an empty database that belongs to a small role."""
        self._server.start()
        self._server.create_databases(DATABASE)
        with connections.connect(self._server.dsn(DATABASE), "database", name="demo") as administrator:
            administrator.execute(_CREATE_FOLLOWER)

    def start(self) -> None:
        """Start the cluster again."""
        self._server.start()

    def kill(self) -> None:
        """Kill the cluster, as if its machine had lost its power."""
        self._server.stop("immediate")

    def stop(self) -> None:
        """Shut the cluster down."""
        self._server.stop()

    def add(self, config: Config, source: Connection, pipeline: Connection) -> None:
        """Add the follower, as `pipeline followers add` does."""
        adding.add(config, source, pipeline, self.name, self.dsn, FollowerOptions(tables=("shop.*",)))


def forget(config: Config, folder: Path) -> None:
    """Forget the followers of an earlier demo, for which the server would wait."""
    if folder.is_dir():
        for each in folder.iterdir():
            EmbeddedServer(each).stop("immediate")
        shutil.rmtree(folder)
    with connections.connect(config.database, "pipeline database", name="demo") as pipeline:
        if migrations.current_revision(pipeline) is not None and registry.exists(pipeline):
            for name in registry.list_names(pipeline):
                registry.remove(pipeline, name)
