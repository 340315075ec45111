"""Makes the pictures of the console in docs/how-to/: python -m tests.pages.console_pictures.

A shop under load is replicated for a minute. Each picture is a screen in light at 1280 pixels, as WebP.
"""

from __future__ import annotations

import base64
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from tests.fixtures.console_tab import ConsoleTab, chromium
from tests.fixtures.postgres import Cluster, temporary_server
from tests.fixtures.server import serving

FOLDER = Path(__file__).parents[2] / "docs" / "how-to"
QUALITY = 70
MOST_BYTES = 150_000
SECONDS = 60
"""How long the shop is replicated: the charts show these seconds."""
SHOP = """
    create table customers (id bigint generated always as identity primary key, name text, city text);
    create table orders (id bigint generated always as identity primary key, customer_id bigint, total numeric(10, 2),
        state text, ordered_at timestamptz default now());
    alter table orders replica identity full;
    insert into customers (name, city) select 'Customer ' || n, (array['Basel', 'Graz', 'Turin'])[1 + n % 3]
    from generate_series(1, 300) n;
"""
WORK = """
    insert into orders (customer_id, total, state) select n, 10 + n * 1.37, 'new' from generate_series(1, 1 + %(n)s) n;
    update orders set state = 'paid' where state = 'new' and mod(id, 3) > 0;
    delete from orders where id = (select min(id) from orders);
"""
DEAD = "update consumer_records set state = 'dead', deliveries = 3 where seq in (select max(seq) from consumer_records)"


@contextmanager
def named(cluster: Cluster, name: str, template: str) -> Iterator[psycopg.Connection]:
    """Yield a session in a new database of this name, which ends with its cluster."""
    cluster.create(name, template)
    with psycopg.connect(cluster.dsn(name), autocommit=True) as connection:
        yield connection


@contextmanager
def shop(folder: Path) -> Iterator[str]:
    """Yield the address of a server that has replicated a shop, while changes continue to arrive."""
    with (
        temporary_server(18) as cluster,
        named(cluster, "shop", "template1") as source,
        named(cluster, "pipeline", cluster.template) as log,
        serving(folder, cluster.dsn("shop"), cluster.dsn("pipeline"), "pipeline") as start,
    ):
        source.execute(SHOP.encode())
        url = start(export_schedule="17 3 * * *").url("")
        for name, options in (("mailer", "max_deliveries => 3"), ("search-index", "kind => 'cursor'")):
            log.execute(f"select pipeline.create_consumer('{name}', {options})".encode())
        is_over = threading.Event()
        thread = threading.Thread(target=work, args=(source, is_over))
        thread.start()
        time.sleep(SECONDS)
        log.execute(DEAD)
        try:
            yield url
        finally:
            is_over.set()
            thread.join()


def work(source: psycopg.Connection, is_over: threading.Event) -> None:
    """Change the shop, more in some seconds than in others."""
    number = 0
    while not is_over.wait(0.3):
        number = (number * 7 + 3) % 101
        for statement in WORK.split(";")[:-1]:
            source.execute(statement.encode(), {"n": number} if "%(n)s" in statement else None)


def draw(tab: ConsoleTab, name: str) -> None:
    """Write what the tab shows as a picture."""
    session = tab.page.context.new_cdp_session(tab.page)
    answer = session.send("Page.captureScreenshot", {"format": "webp", "quality": QUALITY})
    picture = base64.b64decode(answer["data"])
    assert len(picture) <= MOST_BYTES, (name, len(picture))
    (FOLDER / f"{name}.webp").write_bytes(picture)
    print(f"{name}.webp: {len(picture):,} bytes")


def main() -> None:
    """Make all pictures."""
    with (
        tempfile.TemporaryDirectory() as folder,
        shop(Path(folder)) as url,
        chromium() as browser,
        ConsoleTab(browser, url) as tab,
    ):
        tab.open()
        draw(tab, "console-overview")
        tab.open("events", "?table=public.orders")
        tab.page.get_by_role("button", name="Live: on").click()
        draw(tab, "console-events")
        tab.open("consumers")
        tab.page.get_by_role("button", name="Delete mailer").click()
        tab.page.get_by_label("Type mailer to continue").wait_for()
        draw(tab, "console-delete")


if __name__ == "__main__":
    main()
