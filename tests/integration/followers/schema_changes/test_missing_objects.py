"""Tables that are new at the source and need what the follower lacks: it is named as the SQL that makes it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from pipeline.followers.running import copier, following
from tests.fixtures.postgres import Cluster, unique
from tests.fixtures.schema_changes import Changed, followed_tables
from tests.fixtures.stage import Stage, databases
from tests.fixtures.waiting import eventually


@pytest.fixture(scope="module")
def stage(cluster: Cluster) -> Iterator[Stage]:
    with databases(cluster, cluster, snapshot="never") as config, Stage(config) as stage:
        stage.start()
        yield stage


@pytest.fixture(autouse=True)
def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower's process looks often: a test waits for it."""
    monkeypatch.setattr(following, "IDLE_SECONDS", 0.1)
    monkeypatch.setattr(following, "REPORT_SECONDS", 0.05)
    monkeypatch.setattr(following, "FIRST_DELAY", 0.1)
    monkeypatch.setattr(copier, "FIRST_DELAY", 0.1)


def statement_for(changed: Changed, table: str) -> str:
    """The statement that is named for a table once that has stopped."""
    found = next((each for each in changed.made.found.table_states if each.table_name == table), None)
    assert found is not None and found.state == "stopped", found
    said = re.fullmatch(r"run there: `(.*)`; it is tried again by itself", found.remedy or "", re.DOTALL)
    assert said is not None, found
    return said[1]


def test_a_new_table_names_the_sql_of_all_that_it_needs(stage: Stage, cluster: Cluster) -> None:
    app, table = unique("app"), unique("moods")
    with followed_tables(stage, cluster, 1, copy="none") as [changed], changed.made.running():
        changed.become_equal_in_time()
        stage.run(
            f"create schema {app}",
            f"create type {app}.mood as enum ('sad', 'it''s ok')",
            f"create domain {app}.moods as {app}.mood[]",
            f"create function {app}.fine({app}.mood) returns boolean immutable language sql as"
            " $$ -- what \\ it's\n\tselect $1 <> 'sad' $$",
            f"create sequence {app}.numbers start 7",
        )
        changed.run(
            f"create table {table} (id int primary key default nextval('{app}.numbers'), m {app}.mood, old {app}.moods,"
            f" check ({app}.fine(m)))",
            f"insert into {table} (m, old) values ('it''s ok', '{{sad}}')",
        )
        stage.arrive()
        statement = eventually(lambda: statement_for(changed, table))
        assert statement.isprintable()  # a line break would be shown as two characters, and could not be run
        made = re.findall(r"\bcreate (?:or replace )?(\w+)", statement, re.IGNORECASE)
        assert sorted(kind.lower() for kind in made) == ["domain", "function", "schema", "sequence", "type"]
        changed.there(statement)
        changed.become_equal_in_time(table, changed.t)
