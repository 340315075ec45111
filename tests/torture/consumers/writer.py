"""Transactions at random, as a source would send them: rows live before they are updated, and keys are one row's."""

from __future__ import annotations

import random
import threading
from typing import Any

from tests.fixtures.staged import Change, Staged, delete, insert, message, truncate, update

IDS, GROUPS = 25, 4


class Writer(threading.Thread):
    """Writes until `stopped`; the holder of `pausing` makes it wait between two transactions."""

    def __init__(self, staged: Staged, seed: int, stopped: threading.Event, pausing: threading.Lock) -> None:
        super().__init__()
        self.error: BaseException | None = None
        self._staged = staged
        self._random = random.Random(seed)
        self._stopped = stopped
        self._pausing = pausing
        self._live: dict[str, dict[int, dict[str, Any]]] = {"t": {}, "pair": {}}
        self._version = 0

    def run(self) -> None:
        try:
            while not self._stopped.is_set():
                changes = [change for _ in range(self._random.choice((1, 1, 2, 5))) for change in self._changes()]
                with self._pausing:
                    self._staged.commit(*changes)
                self._stopped.wait(self._random.choice((0, 0.002, 0.01, 0.05)))
        except BaseException as error:
            self.error = error

    def _changes(self) -> list[Change]:
        chance = self._random.random()
        if chance < 0.01:
            return self._truncate()
        if chance < 0.06:
            return [insert("keyless", v=self._next()), message(str(self._next()))]
        table = self._random.choice(("t", "t", "pair"))
        number = self._random.randrange(IDS)
        live = self._live[table]
        if number not in live:
            live[number] = self._row(table, number)
            return [insert(table, **live[number])]
        return self._random.choice((self._update, self._update, self._remove, self._replace, self._move))(table, number)

    def _next(self) -> int:
        self._version += 1
        return self._version

    def _row(self, table: str, number: int) -> dict[str, Any]:
        row = {"v": self._next(), "g": self._random.randrange(GROUPS)}
        return {"id": number, **row} if table == "t" else {"a": f"x{number // 5}", "b": number, **row}

    def _key(self, table: str, row: dict[str, Any]) -> dict[str, Any]:
        return {column: row[column] for column in self._staged.tables[table].key}

    def _update(self, table: str, number: int) -> list[Change]:
        row = {**self._live[table][number], "v": self._next()}
        if self._random.random() < 0.2:
            row["g"] = self._random.randrange(GROUPS)
        self._live[table][number] = row
        return [update(table, **row)]

    def _remove(self, table: str, number: int) -> list[Change]:
        return [delete(table, **self._key(table, self._live[table].pop(number)))]

    def _replace(self, table: str, number: int) -> list[Change]:
        gone = self._remove(table, number)
        self._live[table][number] = self._row(table, number)
        return [*gone, insert(table, **self._live[table][number])]

    def _move(self, table: str, number: int) -> list[Change]:
        free = [other for other in range(IDS) if other not in self._live[table]]
        if not free:
            return self._update(table, number)
        old, other = self._live[table].pop(number), self._random.choice(free)
        new = {**old, **self._key(table, self._row(table, other)), "v": self._next()}
        self._live[table][other] = new
        changed = {column: value for column, value in self._key(table, old).items() if new[column] != value}
        return [update(table, changed, **new)]

    def _truncate(self) -> list[Change]:
        table = self._random.choice(("t", "pair", "keyless"))
        self._live.get(table, {}).clear()
        return [truncate(table)]
