"""The workload: a small tea shop with several clerks, each a thread with its own session.

Rows of one table are always locked in the order of their key, so that clerks wait for each other but never deadlock.
"""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from pipeline.demo.recording import RecordingSession
from pipeline.errors import PipelineError
from pipeline.postgres import connections, queries
from pipeline.postgres.connections import Connection

TABLES = ("customers", "stock", "orders", "order_lines")
CLERKS = 4
PACE = 50.0
"""Transactions a second that each clerk tries to make."""
REGULARS = 60
"""Customers who exist from the start, are never deleted, and place the orders."""
OLD_CUSTOMERS, OLD_ORDERS = 20_000, 60_000
"""Customers and orders among the 200,000 existing rows; the others are the orders' lines."""

_FIRST = ("Ana", "Bjørn", "Chloë", "Đorđe", "Eilís", "François", "小龙", "Иван", "Łucja", "محمد", "Nuño", "🦊 Finn")
_LAST = (
    "O'Neill",
    "Ångström",
    'Müller "Max"',
    "D'Arcy",
    "李",
    "Петрова",
    "Smith & Sons",
    "van der Berg",
    "back\\slash",
)
_TEAS = ("Sencha", "Genmaicha", "Darjeeling", "Assam", "Lapsang", "Pu-erh 普洱", "Earl Grey", "Rooibos")
_SIZES = (("50", "4.90"), ("100", "8.90"), ("250", "19.50"))
_STOCK = {
    f"{tea.replace('-', '')[:3].upper()}-{size}": {"title": f"{tea}, {size} g", "price": price, "tags": ["tea", tea]}
    for tea in _TEAS
    for size, price in _SIZES
}
_SKUS = sorted(_STOCK)
_NOTES = (
    None,
    None,
    "Ring twice",
    "c/o Zoë, 3ᵉ étage",
    'Say "hello" — 100% kind\n(second line)',
    "it's a gift; 5€ max",
)
_EXTRAS = (None, {"wrap": "red"}, {"engrave": 'To "J"', "lines": [1, 2]}, {"grams": 12.50, "bio": True, "by": None})


class ChangedMindError(Exception):
    """Raised if a customer wants the last step undone."""


def create(dsn: str) -> None:
    """Create the shop's tables, new and empty, as an administrator: they belong to the role `shop`."""
    with connections.connect(dsn, "source", name="demo") as connection:
        connection.execute(queries.statement("demo", "create_shop"))


def fill(session: RecordingSession) -> None:
    """Fill the shop with rows from the years before the server: its stock, customers and orders."""
    session.fill("stock", queries.statement("demo", "fill_stock"), **_stock_columns())
    session.fill("customers", queries.statement("demo", "fill_customers"), rows=OLD_CUSTOMERS)
    session.fill("orders", queries.statement("demo", "fill_orders"), rows=OLD_ORDERS, customers=OLD_CUSTOMERS)
    session.fill("order_lines", queries.statement("demo", "fill_lines"), skus=_SKUS)


def _stock_columns() -> dict[str, list[Any]]:
    items = list(_STOCK.values())
    titles, prices = [item["title"] for item in items], [item["price"] for item in items]
    return {"skus": list(_STOCK), "titles": titles, "prices": prices, "teas": [str(item["tags"][1]) for item in items]}


def oids(source: Connection) -> list[int]:
    """Return the oids of the shop's tables."""
    query = "select array_agg(oid::bigint) from pg_class where relnamespace = 'shop'::regnamespace and relkind = 'r'"
    found: list[int] = queries.value(source, query)
    return found


def wait_until_published(source: Connection, tables: tuple[str, ...] = TABLES) -> None:
    """Wait until the server publishes the shop's tables. Raises PipelineError after some seconds."""
    deadline = time.monotonic() + 20
    query = "select count(distinct tablename) from pg_publication_tables where schemaname = 'shop'"
    while source.execute(query).fetchone() != (len(tables),):
        if time.monotonic() > deadline:
            raise PipelineError("the server has not added the shop's tables to its publication")
        time.sleep(0.1)


def open_shop(session: RecordingSession) -> None:
    """Insert some more customers, in one transaction."""
    dice = random.Random(0)  # noqa: S311  a workload, no secret
    with session.transaction():
        for _ in range(REGULARS):
            session.insert("customers", **_person(dice))


class ShopClerk(threading.Thread):
    """A clerk, who works until asked to stop. `failure`: the error, if any; `session.record`: the finished work."""

    def __init__(self, dsn: str, number: int, stop: threading.Event) -> None:
        super().__init__(name=f"clerk {number}", daemon=True)
        self.session = RecordingSession(dsn, f"demo clerk {number}")
        self.failure: str | None = None
        self._stopping = stop
        self._dice = random.Random(number)  # noqa: S311  a workload, no secret
        self._acquired: list[str] = []
        tasks = {
            self._sell: 36, self._ship: 24, self._cancel: 8, self._give_up: 5, self._restock: 4, self._count: 4,
            self._acquire: 6, self._forget: 4, self._meet: 6, self._campaign: 3,
        }  # fmt: skip
        self._tasks, self._weights = list(tasks), list(tasks.values())

    def run(self) -> None:
        """Do one task after the other, at PACE or as fast as possible."""
        due = time.monotonic()
        try:
            while not self._stopping.wait(max(0.0, due - time.monotonic())):
                self._dice.choices(self._tasks, self._weights)[0]()
                due = max(due + 1 / PACE, time.monotonic() - 1 / PACE)
        except (psycopg.Error, PipelineError) as error:
            self.failure = connections.one_line(error)
        finally:
            self.session.close()

    def _sell(self, *, rollback: bool = False) -> None:
        """Insert an order with its lines; undo a line if its stock is missing or the customer objects."""
        with self.session.transaction(rollback=rollback):
            order = self.session.insert(
                "orders", customer_id=self._dice.randint(1, REGULARS), note=self._dice.choice(_NOTES)
            )
            for line_no, sku in enumerate(sorted(self._dice.sample(_SKUS, self._dice.randint(1, 4))), start=1):
                with suppress(ChangedMindError, psycopg.errors.CheckViolation), self.session.savepoint():
                    self._add_line(order["id"], line_no, sku)
                    if self._dice.random() < 0.08:
                        raise ChangedMindError
            total = "total = (select sum(quantity * unit_price) from shop.order_lines where order_id = id)"
            self.session.update("orders", total, "id = %(id)s", id=order["id"])

    def _add_line(self, order_id: str | None, line_no: int, sku: str) -> None:
        quantity = self._dice.choice((1, 1, 2, 3, 12))
        item = self.session.update("stock", "on_hand = on_hand - %(n)s", "sku = %(sku)s", n=quantity, sku=sku)[0]
        self.session.insert(
            "order_lines", order_id=order_id, line_no=line_no, sku=sku, quantity=quantity, unit_price=item["price"],
            gift=self._dice.choice((True, False, None)), attributes=_json(self._dice.choice(_EXTRAS)),
        )  # fmt: skip

    def _give_up(self) -> None:
        """Insert an order that is rolled back."""
        self._sell(rollback=True)

    def _ship(self) -> None:
        with self.session.transaction():
            changes = "state = 'shipped', shipped_at = clock_timestamp()"
            self.session.update("orders", changes, "id = any(%(ids)s)", ids=self._take_order())

    def _cancel(self) -> None:
        """Delete the lines, return their stock, delete the order."""
        with self.session.transaction():
            ids = self._take_order()
            lines = self.session.delete("order_lines", "order_id = any(%(ids)s)", ids=ids)
            for line in sorted(lines, key=lambda line: line["sku"] or ""):
                self.session.update(
                    "stock", "on_hand = on_hand + %(n)s::int", "sku = %(sku)s", n=line["quantity"], sku=line["sku"]
                )
            self.session.delete("orders", "id = any(%(ids)s)", ids=ids)

    def _take_order(self) -> list[int]:
        """Lock the oldest placed order that no other clerk has locked, if any, until the transaction ends."""
        return self.session.column(
            "select id from shop.orders where state = 'placed' order by id limit 1 for update skip locked"
        )

    def _restock(self) -> None:
        """Update many rows in one statement."""
        with self.session.transaction():
            skus = self.session.column("select sku from shop.stock where on_hand < 150 order by sku for no key update")
            changes = "on_hand = on_hand + 60, counted_at = clock_timestamp()"
            self.session.update("stock", changes, "sku = any(%(skus)s)", skus=skus)

    def _count(self) -> None:
        """Update one row three times in one transaction."""
        sku = self._dice.choice(_SKUS)
        with self.session.transaction():
            self.session.update("stock", "counted_at = clock_timestamp()", "sku = %(sku)s", sku=sku)
            self.session.update("stock", "discontinued = not discontinued", "sku = %(sku)s", sku=sku)
            self.session.update("stock", "price = round(price * 1.01, 2)", "sku = %(sku)s", sku=sku)

    def _acquire(self) -> None:
        with self.session.transaction():
            self._acquired.append(self.session.insert("customers", **_person(self._dice))["id"] or "")

    def _forget(self) -> None:
        if self._acquired:
            with self.session.transaction():
                self.session.delete("customers", "id = %(id)s", id=self._acquired.pop(0))

    def _meet(self) -> None:
        """Change or remove the data of a customer."""
        person = _person(self._dice)
        with self.session.transaction():
            self.session.update(
                "customers", "email = %(email)s, preferences = %(preferences)s", "id = %(id)s",
                email=person["email"], preferences=person["preferences"], id=self._dice.randint(1, REGULARS),
            )  # fmt: skip

    def _campaign(self) -> None:
        chosen = self._dice.sample(range(1, REGULARS + 1), 8)
        with self.session.transaction():
            ids = self.session.column(
                "select id from shop.customers where id = any(%(ids)s) order by id for no key update", ids=chosen
            )
            self.session.update("customers", "newsletter = not newsletter", "id = any(%(ids)s)", ids=ids)


def _person(dice: random.Random) -> dict[str, Any]:
    name = f"{dice.choice(_FIRST)} {dice.choice(_LAST)}"
    tastes = {"tea": dice.choice(_TEAS), "sugar": dice.randint(0, 3), "quote": '“it\'s "hot"”', "milk": None}
    return {
        "name": name,
        "email": dice.choice((None, f"{dice.randrange(10**6)}@example.org")),
        "born": dice.choice((None, date(1940, 2, 29) + timedelta(days=dice.randrange(24_000)))),
        "newsletter": dice.random() < 0.5,
        "preferences": _json(dice.choice((None, tastes, {}, [tastes["tea"]]))),
        "joined_at": datetime(2020, 1, 1, tzinfo=UTC) + timedelta(microseconds=dice.randrange(10**14)),
    }


def _json(value: Any) -> Jsonb | None:
    return None if value is None else Jsonb(value)
