"""Checks what may take the log back to an earlier state, and what the server needs to see that."""

from __future__ import annotations

from pipeline.findings import Finding, Findings
from pipeline.log import jumps
from pipeline.postgres import migrations, queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

CLOCK_SECONDS = 10
"""The clocks of source and pipeline database may differ by so much: after a restore the log skips seqs by them."""


def clocks(source: Connection, pipeline: Connection) -> Findings:
    """Warn if the two clocks differ, as far as the time that it takes to ask says."""
    before, there, after = jumps.clock(source), jumps.clock(pipeline), jumps.clock(source)
    seconds = max(before - there, there - after, 0) / 1_000_000
    if seconds > CLOCK_SECONDS:
        text = f"the clocks of source and pipeline database differ by {seconds:,.0f} s"
        yield Finding("warning", "clocks", f"{text}: after a restore the log skips seqs by them", "set both by NTP")


def standbys(pipeline: Connection) -> Findings:
    """Warn if the cluster has standbys, and each of them may lack what readers have seen when it is promoted."""
    found = int(queries.value(pipeline, statement("operate.preflight", "asynchronous_standbys")))
    if found:
        text = "a standby of the pipeline database may lack events that readers have seen when it is promoted"
        remedy = "set synchronous_standby_names there; without it readers get some changes again after a promotion"
        yield Finding("warning", "standbys", f"{text}: none of them is synchronous", remedy)


def place(pipeline: Connection) -> Findings:
    """Warn if the provider refuses what tells that the log was restored."""
    if migrations.current_revision(pipeline) != migrations.head():
        return
    found = pipeline.execute("select system_identifier is null, timeline is null from pipeline.log_place()").fetchone()
    names = ("its cluster", "its timeline")
    if refused := [name for name, missing in zip(names, found or (), strict=True) if missing]:
        text = f"the pipeline database does not tell {' and '.join(refused)}: some restores cannot be noticed"
        yield Finding("warning", "restores", text, "run `pipeline sources adopt --restored` after each restore")
