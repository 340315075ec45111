"""Random histories of a few tables: keys of one and of two columns that change, values that the WAL leaves out."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

KEYS: Mapping[str, Sequence[str]] = {"single": ("id",), "pair": ("b", "a")}
TABLES: Mapping[str, str] = {
    "single": "id int primary key, n int, amount numeric(12, 2), day date, note text, grid int[]",
    "pair": "a text, n int, b int, note text, grid int[], primary key (b, a)",
}


def create(table: str) -> Iterator[str]:
    """The statements that make a table; `note` and `grid` are long and stored apart, so updates leave them out."""
    yield f"create table public.{table} ({TABLES[table]})"
    yield f"alter table public.{table} alter note set storage external, alter grid set storage external"


class History:
    """Statements that never fail, since it knows which rows there are."""

    def __init__(self, table: str, seed: int) -> None:
        self._table = f"public.{table}"
        self._single = table == "single"
        self._chance = random.Random(seed)
        self._keys: set[int] = set()
        self._made = 0

    def statements(self, count: int) -> list[str]:
        """The next this many."""
        return [self._next() for _ in range(count)]

    def empty(self) -> None:
        """The table has been created again."""
        self._keys.clear()

    def _next(self) -> str:
        acts = [self._insert, self._update, self._move, self._delete, self._rewrite]
        act = self._chance.choices(acts, [4, 6, 4, 1, 2])[0]
        if self._chance.random() < 0.015:
            self.empty()
            return f"truncate {self._table}"
        return act() if self._keys else self._insert()

    def _insert(self) -> str:
        key = self._free()
        self._keys.add(key)
        columns = ["n", "note", "grid"] + (["amount", "day"] if self._single else [])
        values = [self._number(), self._note(), self._grid()]
        if self._single:
            values.append(self._chance.choice(["'NaN'", "12.50", "null"]))
            values.append(self._chance.choice(["'infinity'", "'2024-02-29'"]))
        names, pk = ("id", str(key)) if self._single else ("b, a", f"{key % 7}, 'k\"{key}'")
        return f"insert into {self._table} ({names}, {', '.join(columns)}) values ({pk}, {', '.join(values)})"

    def _update(self) -> str:
        return f"update {self._table} set n = {self._number()} where {self._where(self._any())}"

    def _rewrite(self) -> str:
        column, value = self._chance.choice([("note", self._note()), ("grid", self._grid())])
        return f"update {self._table} set {column} = {value} where {self._where(self._any())}"

    def _move(self) -> str:
        old, new = self._any(), self._free()
        self._keys.remove(old)
        self._keys.add(new)
        to = f"id = {new}" if self._single else f"b = {new % 7}, a = 'k\"{new}'"
        return f"update {self._table} set {to}, n = {self._number()} where {self._where(old)}"

    def _delete(self) -> str:
        key = self._any()
        self._keys.remove(key)
        return f"delete from {self._table} where {self._where(key)}"

    def _where(self, key: int) -> str:
        return f"id = {key}" if self._single else f"a = 'k\"{key}' and b = {key % 7}"

    def _any(self) -> int:
        return self._chance.choice(sorted(self._keys))

    def _free(self) -> int:
        return self._chance.choice([key for key in range(len(self._keys) + 12) if key not in self._keys])

    def _number(self) -> str:
        self._made += 1
        return str(self._made)

    def _note(self) -> str:
        return self._chance.choice(["null", "'short'", f"repeat('long {self._number()} ', 400)"])

    def _grid(self) -> str:
        flat = f"array_fill({self._number()}, array[900])"
        return self._chance.choice(["null", "'{1,2,null}'", flat, f"array_fill({self._number()}, array[30, 30])"])
