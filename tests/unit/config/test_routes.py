"""Routes as settings: file, environment, plain errors, first match."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import pytest

from pipeline.api import models
from pipeline.config import routes as routing
from pipeline.config import settings
from pipeline.config.routes import Route
from pipeline.consumers.queue import consumers
from pipeline.errors import ConfigError

FILE = """
[[routes]]
tables = ["public.audit_*", ".note*"]
actions = ["insert", "message"]
events_table = "audit.events"
[[routes]]
actions = ["truncate"]
events_table = "public.truncates"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "pipeline.toml"


def test_routes_come_from_the_file_and_survive_a_child_process(file: Path) -> None:
    file.write_text(FILE)
    config = settings.load(file)
    assert [route.events_table for route in config.routes] == ["audit.events", "public.truncates"]
    assert settings.from_json(config.to_json()).routes == config.routes


def test_the_environment_outranks_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text(FILE)
    monkeypatch.setenv("PIPELINE_ROUTES", json.dumps([{"actions": ["delete"], "events_table": "public.gone"}]))
    assert settings.load(file).routes == (Route(actions=("delete",), events_table="public.gone"),)
    monkeypatch.setenv("PIPELINE_ROUTES", "")
    assert settings.load(file).routes == ()


@pytest.mark.parametrize(
    ("schema", "table", "action", "matches"),
    [
        ("public", "audit_log", "insert", True),
        ("public", "audit_log", "update", False),
        ("public", "audit", "insert", False),
        ("other", "audit_log", "insert", False),
        ("", "note:1.2", "message", True),
        ("", "other", "message", False),
    ],
)
def test_a_route_takes_what_its_tables_and_actions_say(schema: str, table: str, action: str, matches: bool) -> None:
    route = Route(tables=("public.audit_*", ".note*"), actions=("insert", "message"), events_table="a.b")
    assert route.matches(schema, table, action) is matches


def test_routes_rest_and_sql_know_the_same_actions() -> None:
    function = (Path(consumers.__file__).parent / "functions" / "check_consumer.sql").read_text()
    (listed,) = re.findall(r"a not in \((.*?)\)", function)
    (said,) = re.findall(r"actions takes (.*?)'", function)
    assert set(re.findall(r"\w+", listed)) == set(routing.ACTIONS) == set(get_args(models.Actions))
    assert set(re.findall(r"\w+", said)) == {*routing.ACTIONS, "and"}


def test_patterns_take_everything_but_the_star_as_it_is() -> None:
    route = Route(tables=("public.a_b%(c)",), events_table="a.b")
    assert route.matches("public", "a_b%(c)", "read")
    assert not route.matches("public", "axb%(c)", "read")
    assert Route(tables=("*.*",), events_table="a.b").matches("", "prefix", "message")


@pytest.mark.parametrize(
    ("route", "said"),
    [
        ({"tables": ["a.b"]}, "route 1, events_table is missing"),
        ({"tables": ["a.b"], "event_table": "a.b", "events_table": "a.b"}, "unknown key 'event_table'; did you mean"),
        ({"actions": ["upsert"], "events_table": "a.b"}, "route 1, actions: expected some of insert, update, delete"),
        ({"tables": ["orders"], "events_table": "a.b"}, "route 1, tables: expected `schema.table`"),
        ({"tables": "a.b", "events_table": "a.b"}, "route 1, tables: expected a list of texts"),
        ({"tables": ["a.b"], "events_table": "events"}, "route 1, events_table: expected `schema.table`"),
        ({"tables": ["a.b"], "events_table": f"a.{'é' * 28}"}, "at most 55 bytes"),
        ({"events_table": "a.b"}, "route 1 matches all changes"),
        ("a.b", "expected a list, [[routes]]"),
    ],
)
def test_a_wrong_route_is_named_with_what_was_expected(
    route: object, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIPELINE_ROUTES", json.dumps([route]))
    with pytest.raises(ConfigError) as caught:
        settings.load()
    assert str(caught.value).startswith("PIPELINE_ROUTES: ")
    assert said in str(caught.value)


@pytest.mark.parametrize("text", ["[", "{}", "public.a"])
def test_what_is_no_json_list_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIPELINE_ROUTES", text)
    with pytest.raises(ConfigError, match="PIPELINE_ROUTES: expected"):
        settings.load()


def test_one_table_instead_of_a_list_is_refused(file: Path) -> None:
    file.write_text('[routes]\nevents_table = "a.b"\n')
    with pytest.raises(ConfigError, match=r"\[\[routes\]\]"):
        settings.load(file)


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ({"tables": ("public.*",)}, {"tables": ("public.a",)}, [(2, 1)]),
        ({"tables": ("public.a*",)}, {"tables": ("public.ab*",), "actions": ("insert",)}, [(2, 1)]),
        ({"actions": ("insert", "update")}, {"tables": ("a.b",), "actions": ("insert",)}, [(2, 1)]),
        ({"tables": ("public.a*",)}, {"tables": ("public.*",)}, []),
        ({"tables": ("public.*",), "actions": ("insert",)}, {"tables": ("public.a",)}, []),
        ({"tables": ("public.a",)}, {"actions": ("insert",)}, []),
    ],
)
def test_a_route_that_an_earlier_one_leaves_nothing_to_is_found(
    first: dict[str, tuple[str, ...]], second: dict[str, tuple[str, ...]], found: list[tuple[int, int]]
) -> None:
    routes = [Route.model_validate({**each, "events_table": "a.b"}) for each in (first, second)]
    assert routing.never_used(routes) == found
