"""Writes docs/schema.sql and the list of docs/reference/schema.md from a migrated database.

`python -m tests.migration.page` writes them; test_schema_pages.py sees that they are current.
"""

from __future__ import annotations

import re
import subprocess
from typing import NamedTuple

import psycopg

from tests.fixtures.generated import DOCS, GeneratedPart
from tests.fixtures.postgres import Cluster, temporary_server

MAJOR = 18
"""The wheel's: pg_dump of each version prints the same schema in another way."""
SCHEMA = DOCS / "schema.sql"
PART = GeneratedPart(DOCS / "reference/schema.md", "tests/migration/page.py")
HEAD = "-- A migrated pipeline database, as pg_dump prints it. Generated: make generated\n\n"
_NOISE = re.compile(
    r"^(?:-- (?:Name: .*|Dumped .*|PostgreSQL .*)|--|\\(?:un)?restrict .*|SET \w+ = .*;|SELECT .*set_config.*)\n", re.M
)
_OURS = (
    "relnamespace::regnamespace::text in ('public', 'pipeline') and relname <> 'alembic_version' and not relispartition"
)
_TABLES = f"""
select relnamespace::regnamespace || '.' || relname as name, relkind = 'v' as is_view,
    coalesce(obj_description(c.oid, 'pg_class'), '') as says,
    coalesce((
        select array_agg(attname order by place)
        from pg_constraint join unnest(conkey) with ordinality as part (attnum, place) on true
            join pg_attribute a on a.attrelid = c.oid and a.attnum = part.attnum
        where conrelid = c.oid and contype = 'p'), '{{}}') as key,
    coalesce((
        select array_agg(distinct confrelid::regclass::text order by confrelid::regclass::text)
        from pg_constraint where conrelid = c.oid and contype = 'f' and conparentid = 0), '{{}}') as refers_to
from pg_class c
where {_OURS} and relkind in ('r', 'p', 'v') and not exists (select from pg_inherits where inhrelid = c.oid)
order by 1
"""


class Table(NamedTuple):
    """A table or view of the pipeline; `key`: the columns of its primary key."""

    name: str
    is_view: bool
    says: str
    key: list[str]
    refers_to: list[str]


def schema(cluster: Cluster, dsn: str) -> str:
    """The whole schema with functions, comments and grants, without what differs from one dump to the next."""
    assert cluster.server is not None
    command = [str(cluster.server.bin_dir / "pg_dump"), "--schema-only", "--no-owner", dsn]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return HEAD + re.sub(r"\n{3,}", "\n\n", _NOISE.sub("", text)).strip() + "\n"


def tables(dsn: str) -> str:
    """Return the list of the tables: the key of each, the tables that it refers to, and what it is for."""
    with psycopg.connect(dsn) as connection:
        found = [Table(*row) for row in connection.execute(_TABLES.encode())]
    lines = ["| table | key | refers to | |", "|---|---|---|---|"]
    for table in found:
        key = "view" if table.is_view else _code(table.key)
        lines.append(f"| `{table.name}` | {key} | {_code(table.refers_to)} | {table.says} |")
    return "\n".join(lines) + "\n"


def _code(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def main() -> None:
    with temporary_server(MAJOR) as cluster, cluster.database("page", cluster.template) as dsn:
        SCHEMA.write_text(schema(cluster, dsn))
        PART.write(tables(dsn))


if __name__ == "__main__":
    main()
