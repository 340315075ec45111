"""The console while the pipeline is empty, loaded, a standby, stopped, frozen, or closed by a token."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import psycopg
import pytest
from playwright.sync_api import Browser

from pipeline.api import event_pages
from pipeline.log import page_before
from tests.fixtures.api import Api
from tests.fixtures.console_crowds import add_crowds
from tests.fixtures.console_shop import Shop
from tests.fixtures.console_tab import SCREENS, ConsoleTab, Scheme
from tests.fixtures.prefix_proxy import USER, proxied
from tests.fixtures.proxies import through
from tests.fixtures.server import Serving
from tests.fixtures.small_log import small_log
from tests.fixtures.waiting import eventually
from tests.torture.faults.proxy import Proxy

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("console"), pytest.mark.timeout(600)]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
TOKEN, READER = "token-ä", "reader"
LOG_IN = "Log in"


@pytest.fixture
def source(source_dsn: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(source_dsn, autocommit=True) as connection:
        connection.execute("create table t (id serial primary key, v text)")
        yield connection


@contextmanager
def load(source: psycopg.Connection) -> Iterator[None]:
    """Insert and update rows until the block ends."""
    is_over = threading.Event()

    def write() -> None:
        while not is_over.is_set():
            source.execute("insert into t (v) select 'x' from generate_series(1, 200)")
            source.execute("update t set v = v || 'y' where id % 10 = 0 and id > (select max(id) - 200 from t)")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@pytest.mark.usefixtures("source")
def test_an_empty_log_names_the_next_step(browser: Browser, serve: Callable[..., Serving]) -> None:
    with ConsoleTab(browser, serve().url("")) as tab:
        tab.open()
        tab.see("The log is empty")
        tab.open("events")
        tab.see("The log is empty: change a row of the source.")
        tab.require_good_screens(*SCHEMES)


def test_screens_stay_good_under_load(
    browser: Browser, serve: Callable[..., Serving], source: psycopg.Connection
) -> None:
    with ConsoleTab(browser, serve().url("")) as tab, load(source):
        tab.require_good_screens(*SCHEMES)


@pytest.mark.usefixtures("source")
def test_a_standby_names_the_leader(browser: Browser, serve: Callable[..., Serving]) -> None:
    leader, standby = serve(), serve(wait=False)
    eventually(lambda: standby.get("/healthz").status_code == 200, errors=(AssertionError, httpx.TransportError))
    eventually(lambda: "standing by" in standby.log())
    with ConsoleTab(browser, standby.url("")) as tab:
        tab.open("server")
        tab.see(f":{leader.process.pid}")
        tab.require_good_screens(*SCHEMES)


def test_a_stop_is_shown_with_its_reason(
    browser: Browser, serve: Callable[..., Serving], source: psycopg.Connection, log: psycopg.Connection
) -> None:
    with ConsoleTab(browser, serve().url("")) as tab:
        log.execute("alter table sequin_events add constraint no_bad check (record ->> 'v' <> 'bad') not valid")
        source.execute("insert into t values (1, 'bad')")
        tab.open()
        tab.see("no_bad")
        assert tab.page.title().startswith("Stopped")
        tab.require_good_screens(*SCHEMES)


@pytest.mark.usefixtures("source")
def test_a_frozen_source_is_named_and_the_page_continues(
    browser: Browser, serve: Callable[..., Serving], source_dsn: str, proxy: Proxy
) -> None:
    server = serve(source_dsn=through(proxy, source_dsn))
    with ConsoleTab(browser, server.url(""), 503) as tab:
        tab.open()
        tab.see("Decoded")
        proxy.freeze()
        tab.see("The source does not answer, so the stages are not known.")
        tab.require_good_screens(*SCHEMES)
        tab.open()
        proxy.thaw()
        tab.see("Decoded")


def test_a_frozen_pipeline_database_leaves_the_last_values(
    browser: Browser, serve: Callable[..., Serving], source: psycopg.Connection, database_dsn: str, proxy: Proxy
) -> None:
    source.execute("insert into t values (1, 'kept')")
    with ConsoleTab(browser, serve(database_dsn=through(proxy, database_dsn)).url(""), 503) as tab:
        tab.open("events")
        tab.see("kept")
        proxy.freeze()
        tab.see("No new values")
        tab.see("The values below are")
        assert tab.page.get_by_text("kept").count() > 0
        assert tab.page.title().startswith("No answer")
        assert tab.breaches(*SCHEMES) == []
        for screen in SCREENS:
            tab.open(screen)
            assert tab.breaches("light") == []
        proxy.thaw()
        tab.miss("No new values")


def test_a_token_is_asked_for_and_leads_to_the_same_screen(
    browser: Browser, serve: Callable[..., Serving], source: psycopg.Connection
) -> None:
    source.execute("insert into t values (1, 'secret')")
    server = serve(api_token=TOKEN, read_token=READER)
    with ConsoleTab(browser, server.url(""), 401) as tab:
        tab.open("events", "?table=public.t")
        tab.see("The session lasts 12 hours")
        assert tab.breaches(*SCHEMES) == []
        for token in ("wrong", TOKEN):
            tab.page.get_by_label("Token").fill(token)
            tab.page.keyboard.press("Enter")
            tab.see("Not logged in" if token == "wrong" else "secret")
        assert tab.page.url.endswith("#/events?table=public.t")
        tab.require_good_screens(*SCHEMES)
        tab.open("tables")
        tab.page.evaluate("localStorage.setItem(Object.keys(localStorage)[0], JSON.stringify({session: '1.old.x'}))")
        tab.see("The session lasts 12 hours")
        tab.page.get_by_label("Token").fill(READER)
        tab.page.keyboard.press("Enter")
        tab.see("public.t")
        tab.page.get_by_role("button", name="Log out").click()
        tab.see("The session lasts 12 hours")
        assert tab.page.evaluate("localStorage.length") == 0


def test_a_proxy_may_add_a_prefix_and_a_password(
    browser: Browser, serve: Callable[..., Serving], source: psycopg.Connection
) -> None:
    source.execute("insert into t values (1, 'secret')")
    with (
        proxied(serve(api_token=TOKEN).port) as url,
        ConsoleTab(browser, url, 401, http_credentials=USER) as tab,
    ):
        tab.open("events")
        tab.page.get_by_label("Token").fill(TOKEN)
        tab.page.keyboard.press("Enter")
        tab.see("secret")
        tab.require_good_screens("light")


def test_a_table_that_is_renamed_and_dropped_keeps_its_history(tab: ConsoleTab, shop: Shop) -> None:
    shop.source.execute("create table old_name (id int primary key, v text)")
    shop.source.execute("alter table old_name replica identity full")
    shop.source.execute("insert into old_name values (1, 'first')")
    tab.open("events", "?table=public.old_name&key=1")
    tab.see("v: first")
    shop.source.execute("alter table old_name rename to new_name")
    shop.source.execute("update new_name set v = 'second'")
    tab.see("v: first → second")
    tab.open("tables", "?find=new_name")
    tab.see("public.new_name")
    shop.source.execute("drop table new_name")
    tab.open("events", "?table=public.new_name&key=1")
    tab.see("v: first → second")


def test_crowds_fit_the_page(browser: Browser, api: Callable[..., Api], database_dsn: str, source_dsn: str) -> None:
    with small_log(database_dsn, 3) as log:
        add_crowds(log)
    with ConsoleTab(browser, api(source_dsn=source_dsn).url) as tab:
        tab.require_good_screens("light")
        tab.open("tables")
        tab.see("1,700 more rows: filter by name to see them.")
        tab.page.get_by_label("Name contains").fill("table_1999")
        tab.page.keyboard.press("Enter")
        tab.see("1 table")


def test_a_filter_without_a_match_looks_further_at_a_click(
    browser: Browser, api: Callable[..., Api], database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_before, "SPAN", 10)
    monkeypatch.setattr(event_pages, "SEARCH_SECONDS", 0)
    with small_log(database_dsn, 25), ConsoleTab(browser, api().url) as tab:
        tab.open("events", "?action=delete")
        tab.see("No event from seq 16 on matches.")
        for text in ("No event from seq 6 on matches.", "No event matches."):
            tab.page.get_by_role("link", name="Look further").click()
            tab.see(text)
