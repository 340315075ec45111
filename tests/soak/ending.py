"""What must hold after a run: each transaction arrived once at each reader, and the log equals the source."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import psycopg

from tests.fixtures.failing_over import ask
from tests.fixtures.waiting import eventually
from tests.soak.clients import ROWS
from tests.soak.samples import Sample
from tests.soak.site import PATIENCE, Site
from tests.soak.verdict import LIMITS

KEYS = "select coalesce(array_agg(id order by id), '{}') from soak"
RUNS = """
select count(*) filter (where state = 'done'), count(*) filter (where state = 'failed') from pipeline.export_runs
"""
EXPORTED = """
select coalesce(max(upto_seq), 0) >= (select max(seq) from sequin_events) from pipeline.exports
where state = 'committed'
"""
EXPORT_PATIENCE = 1200.0
DROPPED = "select coalesce(max(dropped_below), 0) from pipeline.retention"


def wrongs(site: Site) -> list[str]:
    """Stop the writer, wait for the readers, and return what they lack or have twice."""
    written = site.clients.stop_writing()
    try:
        eventually(site.is_drained, PATIENCE)
        eventually(site.is_followed, PATIENCE)
    except AssertionError:
        newest = ask(site.pair.primary, "select max(id) from soak")
        return [f"readers are behind row {newest} {PATIENCE:.0f} s after the last write: {site.newest_seen()}"]
    finally:
        site.clients.stop_reading()
    found, committed = [], set(range(ROWS + 1, written["last"] + 1)) - set(written["unknown"])
    for name in ("ws1", "ws2"):
        seen = site.clients.read(name)
        missing = (set(seen["missing"]) | set(range(seen["last"] + 1, written["last"] + 1))) & committed
        found += [f"{name} lacks {len(missing)} rows, such as {min(missing)}"] if missing else []
        found += [f"{name} had {len(seen['twice'])} rows twice, such as {seen['twice'][0]}"] if seen["twice"] else []
    kept = set(ask(site.pair.primary, KEYS))
    for name in ("sql", "http"):
        differ = kept ^ set(site.clients.read(name)["rows"])
        found += [f"{name} differs from the source in {len(differ)} rows, such as {min(differ)}"] if differ else []
    return found


def refused(site: Site) -> list[str]:
    """Return which of the last commands failed, and whether the scheduled exports have reached the end of the log."""
    found = []
    reread = ("backfill", "start", "public.soak", "--wait")  # retention has dropped events of rows that still exist
    for command in (("verify",), reread, ("verify", "--content")):
        try:
            site.command(*command)
        except RuntimeError as error:
            found.append(str(error))
    with closing(psycopg.connect(site.database_dsn, autocommit=True)) as log:
        try:
            eventually(lambda: log.execute(EXPORTED).fetchone() == (True,), EXPORT_PATIENCE)
        except AssertionError:
            found.append(f"exports have not reached the end of the log {EXPORT_PATIENCE:.0f} s after the last write")
    return found


def row_counts(site: Site) -> dict[str, int]:
    """Return the number of rows of each table that is kept for an hour or longer."""
    with closing(psycopg.connect(site.database_dsn, autocommit=True)) as log:
        return {name: log.execute(f"select count(*) from {name}".encode()).fetchall()[0][0] for name in LIMITS}


def figures(site: Site, half: Sequence[Sample]) -> list[str]:
    """Return sentences about the run."""
    with closing(psycopg.connect(site.database_dsn, autocommit=True)) as log:
        succeeded, failed = log.execute(RUNS).fetchall()[0]
        dropped, events = (
            log.execute(DROPPED).fetchall()[0][0],
            log.execute("select max(seq) from sequin_events").fetchall()[0][0],
        )
    name, dead = max(
        ((name, one.dead) for sample in half for name, one in sample.tables.items()), key=lambda each: each[1]
    )
    server = [
        sum(one.memory for name, one in sample.processes.items() if not name.startswith(("Postgres", "export")))
        for sample in half
    ]
    return [
        f"{events:,} events were written, and retention dropped those below {dropped:,}",
        f"{succeeded} exports succeeded, {failed} failed or were killed",
        f"the server's processes had at most {max(server) / 1e6:,.0f} MB in the second half",
        f"the most dead rows in the second half: {dead:,} in `{name}`",
    ]
