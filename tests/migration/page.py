"""Writes docs/schema.sql and the diagram and list of docs/reference/schema.md from a migrated database.

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
        select array_agg(attname || ' ' || typname order by place)
        from pg_constraint join unnest(conkey) with ordinality as part (attnum, place) on true
            join pg_attribute a on a.attrelid = c.oid and a.attnum = part.attnum join pg_type t on t.oid = atttypid
        where conrelid = c.oid and contype = 'p'), '{{}}') as key
from pg_class c
where {_OURS} and relkind in ('r', 'p', 'v') and not exists (select from pg_inherits where inhrelid = c.oid)
order by 1
"""
_REFERENCES = """
select distinct confrelid::regclass::text, conrelid::regclass::text,
    (select string_agg(attname, ', ' order by attnum) from pg_attribute
     where attrelid = conrelid and attnum = any (conkey))
from pg_constraint where contype = 'f' and conparentid = 0 order by 1, 2, 3
"""


class Table(NamedTuple):
    """A table or view of the pipeline; `key`: name and type of each column of its primary key."""

    name: str
    is_view: bool
    says: str
    key: list[str]


def schema(cluster: Cluster, dsn: str) -> str:
    """The whole schema with functions, comments and grants, without what differs from one dump to the next."""
    assert cluster.server is not None
    command = [str(cluster.server.bin_dir / "pg_dump"), "--schema-only", "--no-owner", dsn]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return HEAD + re.sub(r"\n{3,}", "\n\n", _NOISE.sub("", text)).strip() + "\n"


def diagram(dsn: str) -> str:
    """The tables with their keys, who refers to whom, and what each is for."""
    with psycopg.connect(dsn) as connection:
        tables = [Table(*row) for row in connection.execute(_TABLES.encode())]
        references = connection.execute(_REFERENCES).fetchall()
    lines = ["```mermaid", "erDiagram"]
    for table in tables:
        if table.key:
            attributes = " ".join(f"{_attribute(column)} PK" for column in table.key)
            lines.append(f"    {_entity(table.name)} {{ {attributes} }}")
        elif not table.is_view:
            lines.append(f"    {_entity(table.name)}")
    lines += [f'    {_entity(to)} ||--o{{ {_entity(of)} : "{columns}"' for to, of, columns in references]
    lines += ["```", "", "| table | key | |", "|---|---|---|"]
    for table in tables:
        key = ", ".join(f"`{column.split()[0]}`" for column in table.key) or ("view" if table.is_view else "")
        lines.append(f"| `{table.name}` | {key} | {table.says} |")
    return "\n".join(lines) + "\n"


def _entity(name: str) -> str:
    return name.rpartition(".")[2]


def _attribute(column: str) -> str:
    """Type and name, as diagrams want them."""
    name, kind = column.split()
    return f"{kind.removeprefix('_')}{'[]' if kind.startswith('_') else ''} {name}"


def main() -> None:
    with temporary_server(MAJOR) as cluster, cluster.database("page", cluster.template) as dsn:
        SCHEMA.write_text(schema(cluster, dsn))
        PART.write(diagram(dsn))


if __name__ == "__main__":
    main()
