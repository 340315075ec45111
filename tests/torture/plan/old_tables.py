"""Tables with rows that the stream never brings: from before the server, or of the transaction that made them. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy

from tests.torture.plan.lane import KEY_RANGE, LanePlanner, SteadyLanePlanner
from tests.torture.plan.plan import Effect, Step
from tests.torture.plan.statements import ITEM, LANES, LINE, TOASTED, WHOLE, back, listed

OLD = ("id", "note", "pad", "big")
OLD_ROWS, MADE_ROWS, FEW = 240, 160, 30
"""Rows of an existing table; of one that is made meanwhile; of each connection in the shared tables."""
MADE = 2
"""Tables that each connection makes."""
_WIDTHS = (3, 60, 220)
"""Of `pad`, in units of 32 characters: the widest fills a block, so an update to it moves the row to another one."""
_MADE_SHARE = 0.08
_MAINTENANCE = ("vacuum full {0}", "cluster {0} using {1}_pkey", "vacuum full {0}", "vacuum {0}")


def name_of(lane: int) -> str:
    return f"public.old_{lane}"


def create(name: str, chance: random.Random, *, keyed: bool = True) -> str:
    """Some have a row in each block, so that they are read in many ranges."""
    fill = chance.choice((10, 10, 100))
    key = " primary key" if keyed else ""
    return (
        f"create table {name} (id int{key}, note text, pad text, big text) with (fillfactor={fill});"
        f" alter table {name} alter pad set storage plain, alter big set storage external"
    )


def rows_of(first: int, count: int) -> str:
    """A third of them have a value outside of the row."""
    big = f"case n % 3 when 0 then rpad(md5(n::text), {TOASTED} + n % 7, 'y') when 1 then 'small' end"
    return f"select n, 'before', repeat(md5(n::text), 60), {big} from generate_series({first + 1}, {first + count}) n"


def before(seed: int) -> str:
    """Statements that are over before the server begins for the first time."""
    chance = random.Random(f"old {seed}")
    each = [_shared(lane) + _own(lane, chance) for lane in range(1, LANES + 1)]
    return ";\n".join(statement for statements in each for statement in statements)


def _own(lane: int, chance: random.Random) -> list[str]:
    name = name_of(lane)
    return [create(name, chance), f"insert into {name} {rows_of(lane * KEY_RANGE, OLD_ROWS)}"]


def _shared(lane: int) -> list[str]:
    numbers = f"generate_series({lane * KEY_RANGE + 1}, {lane * KEY_RANGE + FEW}) n"
    big = f"case n % 2 when 0 then rpad(md5(n::text), {TOASTED}, 'y') end"
    return [
        f"insert into public.items (id, amount, note, doc, big) select n, 1, 'before', '[1]', {big} from {numbers}",
        f"insert into public.lines select {lane}, n, 'before' from {numbers}",
        f"insert into public.whole select n, 'before', {big} from {numbers}",
    ]


_KEY = "alter table {} add primary key (id)"


def keyed_later(steps: Iterable[Step]) -> set[str]:
    """Tables that get their key when they have rows."""
    texts = {step.sql.strip() for step in steps}
    names = (f"public.made_{lane}_{n}" for lane in range(1, LANES + 1) for n in range(1, MADE + 1))
    return {name for name in names if _KEY.format(name) in texts}


COLUMNS = {
    "public.items": ITEM,
    "public.lines": LINE,
    "public.whole": WHOLE,
    **{name_of(lane): OLD for lane in range(1, LANES + 1)},
}
"""Of tables with existing rows."""


class OldLanePlanner(LanePlanner):
    """A connection that has existing rows, in its own tables too, and that makes tables with rows in them."""

    def __init__(self, lane: int, chance: random.Random, numbers: Callable[[], int]) -> None:
        super().__init__(lane, chance, numbers)
        first = self._new_keys(OLD_ROWS)
        few = first[:FEW]
        self._rows.items.update(few)
        self._rows.lines.update(few)
        self._rows.whole.update(few)
        self._rows.own[name_of(lane)] = set(first)
        self._made = 0
        self._keyless: list[str] = []
        self._queue: list[Step] = []

    def begin(self) -> Step:
        self._queue = []
        return super().begin()

    def next(self) -> Step:
        if self._queue:
            return self._queue.pop(0)
        if self._left > 0 and not self._prepares and self._chance.random() < self.OWN_SHARE:
            self._left -= 1
            return self._own_step()
        return super().next()

    def between(self) -> list[Step]:
        """What it does instead of a transaction of the usual kind, if anything."""
        if (chance := self._chance.random()) < self.MAINTAINED_SHARE:
            return [self._maintain()]
        if chance < self.MAINTAINED_SHARE + _MADE_SHARE:
            if self._keyless:
                return list(self._give_key())
            if self._made < MADE:
                return list(self._make())
        return []

    def _maintain(self) -> Step:
        names = sorted(set(self._rows.own) - set(self._keyless))
        name = self._chance.choice([*names * 3, "public.items", "public.lines"])
        text = self._chance.choice(_MAINTENANCE).format(name, name.rpartition(".")[2])
        return Step(self._numbers(), self.number, "maintain", text)

    def _make(self) -> Iterator[Step]:
        """No session sees the table before it has its rows."""
        self._made += 1
        name = f"public.made_{self.number}_{self._made}"
        keyed = self._chance.random() < 0.6
        yield self._begin_alone()
        keys = self._new_keys(MADE_ROWS)
        yield self._step("change", create(name, self._chance, keyed=keyed))
        yield self._said(name, "insert", f"insert into {name} {rows_of(keys[0] - 1, MADE_ROWS)}")
        self._rows.own[name] = set(keys)
        if not keyed:
            self._keyless.append(name)
        yield self._commit()

    def _give_key(self) -> Iterator[Step]:
        name = self._keyless.pop(0)
        yield self._begin_alone()
        yield self._step("change", _KEY.format(name))
        yield self._commit()

    def _begin_alone(self) -> Step:
        step = self.begin()
        self._prepares, self._rows = False, deepcopy(self._before)
        return step

    def _own_step(self) -> Step:
        name = self._chance.choice(sorted(self._rows.own))
        if name in self._keyless:
            return self._insert_own(name)
        return self._chance.choice(self.OWN)(self, name)

    def _said(self, name: str, action: str, sql: str, kept: tuple[str, ...] = (), was: str | None = None) -> Step:
        columns = ("id",) if action == "delete" else OLD
        effect = Effect(name, action, ("id",), columns, kept, was)
        return Step(self._transaction, self.number, "change", f"{sql} {back(columns)}", effect)

    def _note(self) -> str:
        return f"'{self._chance.random()}'"

    def _big(self) -> str:
        return self._chance.choice(("null", "'small'", f"rpad({self._note()}, {TOASTED + 500}, 'z')"))

    def _pad(self) -> str:
        return f"repeat(md5({self._note()}), {self._chance.choice(_WIDTHS)})"

    def _insert_own(self, name: str) -> Step:
        """New keys, or some that were there before."""
        gone = self._rows.gone.setdefault(name, set())
        again = self._some(gone, 3) if self._chance.random() < 0.5 and name not in self._keyless else []
        keys = again or self._new_keys(self._chance.randint(1, 6))
        gone.difference_update(keys)
        self._rows.own[name].update(keys)
        return self._inserting(name, keys)

    def _inserting(self, name: str, keys: Sequence[int]) -> Step:
        rows = ", ".join(f"({key}, {self._note()}, {self._pad()}, {self._big()})" for key in keys)
        conflict = "" if name in self._keyless else " on conflict do nothing"
        return self._said(name, "insert", f"insert into {name} values {rows}{conflict}")

    def _update_own(self, name: str) -> Step:
        """What is long and outside of the row is left alone."""
        keys = self._some(self._rows.own[name], 12)
        changed = self._chance.choice((f"note = {self._note()}", f"pad = {self._pad()}", f"pad = {self._pad()}"))
        return self._said(name, "update", f"update {name} set {changed} where id in ({listed(keys)})", ("big",))

    def _update_own_big(self, name: str) -> Step:
        keys = self._some(self._rows.own[name], 4)
        return self._said(name, "update", f"update {name} set big = {self._big()} where id in ({listed(keys)})")

    def _move_own(self, name: str) -> Step:
        """To a new key, or to one of a row that is gone."""
        own, gone = self._rows.own[name], self._rows.gone.setdefault(name, set())
        if not own:
            return self._insert_own(name)
        (old,) = self._chance.sample(sorted(own), 1)
        new = self._chance.choice(sorted(gone)) if gone and self._chance.random() < 0.5 else self._new_keys(1)[0]
        own ^= {old, new}
        gone.discard(new)
        gone.add(old)
        free = f"not exists (select from {name} where id = {new})"
        return self._said(
            name, "update", f"update {name} set id = {new} where id = {old} and {free}", ("big",), f"{old}"
        )

    def _delete_own(self, name: str) -> Step:
        keys = self._some(self._rows.own[name], 4)
        self._rows.own[name].difference_update(keys)
        self._rows.gone.setdefault(name, set()).update(keys)
        return self._said(name, "delete", f"delete from {name} where id in ({listed(keys)})")

    def _replace_own(self, name: str) -> Step:
        """A row goes and comes again, in one transaction."""
        keys = self._some(self._rows.own[name], 3)
        if not keys:
            return self._insert_own(name)
        self._queue.append(self._inserting(name, keys))
        return self._said(name, "delete", f"delete from {name} where id in ({listed(keys)})")

    def _truncate_own(self, name: str) -> Step:
        if self._chance.random() < 0.9:
            return self._update_own(name)
        self._rows.gone.setdefault(name, set()).update(self._rows.own[name])
        self._rows.own[name] = set()
        return self._say.truncate_own(name)

    OWN_SHARE, MAINTAINED_SHARE = 0.4, 0.06
    OWN: Sequence[Callable[[OldLanePlanner, str], Step]] = (
        *[_insert_own, _update_own, _move_own, _delete_own] * 2,
        *[_update_own, _update_own, _update_own_big, _replace_own, _truncate_own],
    )


class SteadyOldLanePlanner(OldLanePlanner, SteadyLanePlanner):
    """The same in small transactions, which mostly leave its own tables alone: an update of them lacks values."""

    OWN_SHARE, MAINTAINED_SHARE = 0.04, 0.006
