"""Migrations and tools: each is a generator of transactions, between which others work."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Generator
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from tests.fixtures.postgres import bin_dir
from tests.torture.ordinary_schema.source import Source

Job = Generator[str, None, None]
"""Statements of one transaction at a time; an empty text lets others work."""
Kind = Callable[[Source], Job]
LONGEST_REST = 12
_FOLDER = Path(__file__).parent
TABLES = (_FOLDER / "tables.sql").read_text()
_CHOICE = re.compile(r"\{([^{}]*\|[^{}]*)\}")


def kinds(source: Source) -> dict[str, Kind]:
    """By name, those that this source can have."""
    found = dict[str, Kind]()
    for block in re.split(r"^--- ", (_FOLDER / "migrations.sql").read_text(), flags=re.MULTILINE)[1:]:
        header, _, body = block.partition("\n")
        name, _, claims = header.partition(": ")
        if "18" not in claims or source.major >= 18:
            found[name] = _written(claims.removesuffix(", 18"), body.replace("\\\n", ""))
    if (bin_dir(source.major) or Path()).joinpath("pg_repack").is_file():
        found["pg_repack"] = _pg_repack
    return found


def _written(claims: str, body: str) -> Kind:
    def job(source: Source) -> Job:
        chance, given = source.chance, {"n": str(source.number())}
        if claims in ("any", "shadowable"):
            table = source.table(shadowable=claims == "shadowable")
            source.claim(table.name)
            columns = [each for each in source.columns(table) if not each.generated]
            given |= {"t": table.name, "s": table.schema, "short": table.short}
            given["columns"] = ", ".join(f'"{each.name}"' for each in columns)
            given["key"] = "x." + ", x.".join(f'"{each.name}"' for each in columns if each.in_key)
        elif claims:
            source.claim(*claims.split(", "))
        text = re.sub(r"\{(\w+)\}", lambda found: given.get(found[1], found[0]), body)
        while choice := _CHOICE.search(text):
            text = text[: choice.start()] + chance.choice(choice[1].split("|")) + text[choice.end() :]
        for step in filter(str.strip, text.split("\n")):
            if step != "...":
                yield step
            else:
                for _ in range(chance.randrange(LONGEST_REST)):
                    yield ""

    return job


def _pg_repack(source: Source) -> Job:
    """The program of Debian's `postgresql-15-repack`: a shadow table, a log by a trigger, an exchange of files."""
    table = source.table()
    source.claim(table.name)
    given = conninfo_to_dict(source.connection.info.dsn)
    where = {f"PG{name.upper()}": str(given[name]) for name in ("host", "port", "user") if name in given}
    program = str((bin_dir(source.major) or Path()) / "pg_repack")
    arguments = [program, "--no-order", "--wait-timeout=5", "--no-kill-backend", "--table", table.name]
    where["PGDATABASE"] = source.connection.info.dbname
    with subprocess.Popen(arguments, env={**os.environ, **where}, stderr=subprocess.PIPE) as ran:
        while ran.poll() is None:
            yield ""
        if ran.returncode:
            raise ValueError(ran.stderr.read().decode() if ran.stderr else "")
