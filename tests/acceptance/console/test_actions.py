"""Each action of the console is done by keyboard and seen in the database; a cancelled one sends nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import psycopg
import pytest
from playwright.sync_api import Browser

from tests.fixtures.console_shop import FOLLOWER, Shop
from tests.fixtures.console_tab import ConsoleTab
from tests.fixtures.served_follower import Following
from tests.fixtures.server import Serving
from tests.fixtures.waiting import eventually

pytestmark = pytest.mark.xdist_group("console")
WORK = "(select id from pipeline.consumers where name = 'work')"
CREATE = """
    select pipeline.create_consumer('work', max_deliveries => 1, start => 'beginning', tables => '{public.files}')
"""
EXISTS = f"select exists {WORK}"
STATE = "select state from pipeline.consumers where name = 'work'"
WITHOUT_ITEMS = f"delete from consumer_records where consumer_id = {WORK}"
ITEMS = f"select count(*) from consumer_records where consumer_id = {WORK}"
DEAD = f"update consumer_records set state = 'dead', deliveries = 1 where consumer_id = {WORK}"
LEFT = (
    f"select array[count(*) filter (where state = 'dead'), count(*)] from consumer_records where consumer_id = {WORK}"
)
PARKED = "update pipeline.dead_letters set state = 'parked', attempts = 1"
RETRIED = "select count(*) filter (where attempts > 1 or state in ('retrying', 'retried')) from pipeline.dead_letters"
DISCARDED = "select count(*) filter (where state = 'discarded') from pipeline.dead_letters"
WANTED = "select wanted from pipeline.followers where name = 'reports'"
BACKFILL = "select state from pipeline.backfills order by id desc limit 1"
OPEN_BACKFILLS = "select count(*) from pipeline.backfills where state in ('waiting', 'reading', 'paused')"


@dataclass(frozen=True)
class Action:
    """An action: its screen and button, and the texts to type by label before it is confirmed.

    `seen`: a query whose value is `before`, and later `after`. `prepared`: a statement to run first. `chosen`: True if
    the first row must be chosen.
    """

    screen: str
    button: str
    seen: str
    before: Any
    after: Any
    typed: dict[str, str] = field(default_factory=dict)
    prepared: str = ""
    chosen: bool = False


def typing(text: str) -> dict[str, str]:
    return {f"Type {text} to continue": text}


OF_WORK = "consumers?name=work"
SAMPLE = [
    Action("consumers", "Delete work", EXISTS, True, False, typing("work")),
    Action("problems", "Discard all", DISCARDED, 0, 4, typing("all"), PARKED),
]
OTHERS = [
    Action(
        "consumers", "Create a consumer", EXISTS, False, True, {"Name": "work"}, "select pipeline.drop_consumer('work')"
    ),
    Action("consumers", "Pause work", STATE, "active", "paused"),
    Action("consumers", "Resume work", STATE, "paused", "active", prepared="select pipeline.pause_consumer('work')"),
    Action("consumers", "Reset work", ITEMS, 0, 3, typing("work"), WITHOUT_ITEMS),
    Action(OF_WORK, "Retry chosen", LEFT, [3, 3], [2, 3], prepared=DEAD, chosen=True),
    Action(OF_WORK, "Retry all", LEFT, [3, 3], [0, 3], prepared=DEAD),
    Action(OF_WORK, "Discard chosen", LEFT, [3, 3], [2, 2], typing("1"), DEAD, chosen=True),
    Action(OF_WORK, "Discard all", LEFT, [3, 3], [0, 0], typing("work"), DEAD),
    Action("problems", "Retry chosen", RETRIED, 0, 1, prepared=PARKED, chosen=True),
    Action("problems", "Retry all", RETRIED, 0, 4, prepared=PARKED),
    Action("problems", "Discard chosen", DISCARDED, 0, 1, typing("1"), PARKED, chosen=True),
    Action(
        "followers",
        "Pause reports",
        WANTED,
        "running",
        "paused",
        prepared="update pipeline.followers set wanted = 'running', state = 'stopped'",
    ),
    Action(
        "followers",
        "Resume reports",
        WANTED,
        "paused",
        "running",
        prepared="update pipeline.followers set wanted = 'paused', state = 'paused'",
    ),
]


@pytest.fixture
def work(shop: Shop) -> None:
    """The consumer `work` with three items."""
    if shop.one(EXISTS):
        shop.log.execute("select pipeline.drop_consumer('work')")
    shop.log.execute(CREATE)
    eventually(lambda: shop.one(ITEMS) == 3)


def press(tab: ConsoleTab, button: str, typed: dict[str, str], key: str) -> None:
    """Reach a button by keyboard, press it, type these texts into its dialog, and press a key there."""
    tab.reach(tab.page.get_by_role("button", name=button, exact=True))
    tab.page.keyboard.press("Enter")
    dialog = tab.page.get_by_role("dialog")
    for label, text in typed.items():
        tab.reach(dialog.get_by_label(label, exact=True))
        tab.page.keyboard.press("Control+A")
        tab.page.keyboard.type(text)
    assert tab.breaches() == []
    tab.page.keyboard.press(key)
    dialog.wait_for(state="detached")


def do(tab: ConsoleTab, button: str, typed: dict[str, str] | None = None) -> None:
    """Do an action by keyboard."""
    press(tab, button, typed or {}, "Enter")
    tab.see("Done")


@pytest.mark.usefixtures("work")
@pytest.mark.parametrize(
    "action",
    [*SAMPLE, *(pytest.param(each, marks=pytest.mark.long) for each in OTHERS)],
    ids=lambda each: f"{each.screen}-{each.button}",
)
def test_an_action_is_done_by_keyboard_unless_cancelled(tab: ConsoleTab, shop: Shop, action: Action) -> None:
    sent: list[str] = []
    tab.page.on("request", lambda request: sent.extend([request.url] if request.method != "GET" else []))
    if action.prepared:
        shop.log.execute(action.prepared.encode())
    tab.open(action.screen)
    if action.chosen:
        tab.reach(tab.page.get_by_role("checkbox").first)
        tab.page.keyboard.press("Space")
    press(tab, action.button, action.typed, "Escape")
    assert (shop.one(action.seen), sent) == (action.before, [])
    do(tab, action.button, action.typed)
    eventually(lambda: shop.one(action.seen) == action.after)


@pytest.mark.usefixtures("work")
def test_a_wrong_name_and_a_late_click_are_told(tab: ConsoleTab, shop: Shop) -> None:
    tab.expect(404)
    tab.open("consumers")
    tab.page.get_by_role("button", name="Delete work").click()
    tab.page.get_by_label("Type work to continue").fill("wrok")
    tab.page.keyboard.press("Enter")
    tab.see('you typed "wrok", not "work"')
    assert tab.breaches("light") == []
    shop.log.execute("select pipeline.drop_consumer('work')")
    tab.page.get_by_label("Type work to continue").fill("work")
    tab.page.keyboard.press("Enter")
    tab.see("there is no consumer 'work'")


@contextmanager
def held(shop: Shop, table: str) -> Iterator[None]:
    """Lock a table of the source, so that its backfill waits."""
    with psycopg.connect(shop.source.info.dsn) as holder:
        holder.execute(f"lock table {table} in access exclusive mode".encode())
        yield


def is_backfill_in(shop: Shop, states: set[str]) -> bool:
    """True if the newest backfill is in one of these states."""
    return shop.one(BACKFILL) in states


@pytest.mark.long
def test_a_backfill_is_started_paused_resumed_and_cancelled(tab: ConsoleTab, shop: Shop) -> None:
    with held(shop, "orders"):
        tab.open("tables", "?find=orders")
        do(tab, "Backfill public.orders")
        eventually(lambda: shop.one(OPEN_BACKFILLS) == 1)
        number = shop.one("select max(id) from pipeline.backfills")
        for button, state in (("Pause", "paused"), ("Resume", "waiting"), ("Cancel", "cancelled")):
            typed = typing("public.orders") if button == "Cancel" else {}
            press(tab, f"{button} backfill {number}", typed, "Escape")
            do(tab, f"{button} backfill {number}", typed)
            wanted = {state, "reading"} if button == "Resume" else {state}
            eventually(partial(is_backfill_in, shop, wanted))


@pytest.mark.long
def test_tables_of_a_follower_are_copied_again(browser: Browser, following_alone: Following) -> None:
    following_alone.source.execute("insert into orders values (1, 'new', 'x')")
    following_alone.there.execute("insert into orders values (1, 'new', 'x')")
    following_alone.add()
    following_alone.state("following")
    following_alone.there.execute("delete from orders")
    with ConsoleTab(browser, following_alone.server.url("")) as tab:
        tab.open("followers")
        typed = {"Tables, comma separated; * matches anything": "public.orders", **typing("reports")}
        press(tab, "Resync reports", typed, "Escape")
        do(tab, "Resync reports", typed)
    following_alone.become_equal()


@pytest.mark.long
@pytest.mark.timeout(500)
def test_an_export_begins_at_a_click(
    browser: Browser, serve: Callable[..., Serving], source_dsn: str, database_dsn: str
) -> None:
    with psycopg.connect(source_dsn, autocommit=True) as source, psycopg.connect(database_dsn, autocommit=True) as log:
        source.execute("create table t (id int primary key)")
        with ConsoleTab(browser, serve(export_schedule="0 0 1 1 *").url("")) as tab:
            tab.open("lake")
            do(tab, "Export now")
            assert log.execute("select count(*) from pipeline.export_requests where refusal is null").fetchone() == (1,)
            ended = "select from pipeline.export_runs where state = 'done'"
            eventually(lambda: log.execute(ended).rowcount == 1, timeout=250)
            tab.page.locator("tbody td", has_text="done").first.wait_for()


@pytest.mark.long
def test_a_reader_sees_no_buttons(browser: Browser, serve: Callable[..., Serving], log: psycopg.Connection) -> None:
    server = serve(api_token="all", read_token="reads")
    log.execute("select pipeline.create_consumer('mailer')")
    log.execute(FOLLOWER.encode())
    with ConsoleTab(browser, server.url(""), 401) as tab:
        tab.open("consumers")
        tab.page.get_by_label("Token").fill("reads")
        tab.page.keyboard.press("Enter")
        tab.see("mailer")
        for screen in ("consumers", "followers", "lake", "problems", "tables"):
            tab.open(screen)
            names = tab.page.get_by_role("button").all_inner_texts()
            assert {*names} <= {"Log out", "Copy", "Filter"}, names
