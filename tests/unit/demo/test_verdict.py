"""The demo's check catches whatever could go wrong: each kind of damage, done to a log that was good."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from pipeline.demo.verdict import ReceivedEvent, RecordedTransaction, RowChange, Values, WriterRecord, verdict

Log = list[ReceivedEvent]


def insert(order: str, total: str | None = "1.50") -> RowChange:
    return RowChange("shop.orders", "insert", (order,), {"id": order, "total": total, "version": "1"})


def update(order: str, version: int, old: Values | None = None) -> RowChange:
    return RowChange("shop.orders", "update", (order,), {"id": order, "total": "2.00", "version": str(version)}, old)


def delete(order: str) -> RowChange:
    return RowChange("shop.orders", "delete", (order,), {"id": order})


COMMITTED = [
    RecordedTransaction(10, began=0.0, ended=1.0, changes=(insert("1"), insert("2"), update("1", 2))),
    RecordedTransaction(11, began=2.0, ended=4.0, changes=(insert("3"),)),
    RecordedTransaction(12, began=3.0, ended=5.0, changes=(insert("4", None), insert("5"))),
    RecordedTransaction(13, began=6.0, ended=7.0, changes=(update("1", 3, {"total": "2.00"}), delete("2"))),
]
ROLLED_BACK = 99


def written(order: Sequence[RecordedTransaction] = COMMITTED) -> Log:
    """The events of these transactions as a log in this order numbers them."""
    places = [
        (place, idx, tx.xid, change) for place, tx in enumerate(order, 1) for idx, change in enumerate(tx.changes)
    ]
    return [
        ReceivedEvent(seq, commit_lsn=1000 * place, commit_idx=idx, xid=xid, change=change)
        for seq, (place, idx, xid, change) in enumerate(places, 1)
    ]


def judge(log: Log) -> list[str]:
    return verdict(WriterRecord(COMMITTED, {ROLLED_BACK}), log)


def renumbered(log: Log) -> Log:
    """The same events in this order, with everything that the product numbers as if it were right."""
    seen: dict[int, int] = {}
    numbered = []
    for seq, event in enumerate(log, 1):
        idx = seen[event.xid] = seen.get(event.xid, -1) + 1
        numbered.append(replace(event, seq=seq, commit_lsn=1000 * len(seen), commit_idx=idx))
    return numbered


def swapped(log: Log, first: int, second: int) -> Log:
    log[first], log[second] = log[second], log[first]
    return log


def altered(log: Log, at: int, **values: str | None) -> Log:
    log[at] = replace(log[at], change=replace(log[at].change, values={**log[at].change.values, **values}))
    return log


def test_a_log_like_the_record_is_good() -> None:
    assert judge(written()) == []


def test_transactions_that_overlapped_may_come_in_either_order() -> None:
    first, second, third, last = COMMITTED
    assert judge(written([first, third, second, last])) == []


def test_gaps_in_seq_are_allowed() -> None:
    assert judge([replace(event, seq=event.seq * 3) for event in written()]) == []


DAMAGE: dict[str, tuple[Callable[[Log], Log], str]] = {
    "first event of a transaction missing": (lambda log: log[1:], "insert of shop.orders 2, where the writer made"),
    "last event of a transaction missing": (lambda log: log[:2] + log[3:], "update of shop.orders 1 is missing"),
    "transaction missing": (lambda log: log[:3] + log[4:], "transaction 11 is missing; changes: 1"),
    "last transaction missing": (lambda log: log[:-2], "transaction 13 is missing"),
    "everything missing": (lambda log: [], "transaction 10 is missing"),
    "event twice": (lambda log: [*log[:2], log[1], *log[2:]], "shop.orders 2, where the writer made an update"),
    "last event of a transaction twice": (lambda log: [*log, log[-1]], "shop.orders 2 (seq 9) is one too many"),
    "transaction twice": (lambda log: [*log, *log[:3]], "transaction 10, which had earlier events"),
    "changes swapped": (lambda log: swapped(log, 0, 1), "insert of shop.orders 2, where the writer made an insert of"),
    "transaction torn": (lambda log: swapped(log, 2, 3), "transaction 10, which had earlier events"),
    "transactions swapped": (
        lambda log: written([COMMITTED[1], COMMITTED[0], *COMMITTED[2:]]),
        "transaction 10 comes after 11, which began only after this commit",
    ),
    "first and last transaction swapped": (
        lambda log: written([COMMITTED[3], *COMMITTED[1:3], COMMITTED[0]]),
        "update of shop.orders 1 to version 3, but the row was at version none",
    ),
    "value altered": (lambda log: altered(log, 0, total="1.5"), "total is '1.5', and the writer has '1.50'"),
    "NULL altered": (lambda log: altered(log, 4, total=""), "total is '', and the writer has None"),
    "column added": (lambda log: altered(log, 1, note=None), "note is None, and the writer has absent"),
    "rolled back transaction": (
        lambda log: [*log, ReceivedEvent(9, 9000, 0, ROLLED_BACK, insert("9"))],
        "insert of shop.orders 9 by transaction 99, which was rolled back",
    ),
    "event of no writer": (
        lambda log: [*log, ReceivedEvent(9, 9000, 0, 77, insert("9"))],
        "insert of shop.orders 9 by transaction 77, which no writer knows",
    ),
    "event too many in a transaction": (
        lambda log: [*log, ReceivedEvent(9, 4000, 2, 13, insert("9"))],
        "insert of shop.orders 9 (seq 9) is one too many",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("damage", "said"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_named_though_the_numbers_look_right(damage: Callable[[Log], Log], said: str) -> None:
    assert said in "\n".join(judge(renumbered(damage(written()))))


def test_old_values_are_compared() -> None:
    log = written()
    for old in ({"total": "1.99"}, {}, None):
        log[6] = replace(log[6], change=replace(log[6].change, old=old))
        assert any("transaction 13, change 0" in difference for difference in judge(log))


@pytest.mark.parametrize(
    ("seq", "lsn", "idx", "said"),
    [
        (3, 4000, 1, "seq 3 comes after 7"),
        (8, 2001, 1, "is at 0/7D1, 1; 0/FA0, 1 was expected"),
        (8, 4000, 2, "is at 0/FA0, 2; 0/FA0, 1 was expected"),
    ],
)
def test_numbers_are_checked_as_well(seq: int, lsn: int, idx: int, said: str) -> None:
    log = written()
    log[7] = replace(log[7], seq=seq, commit_lsn=lsn, commit_idx=idx)
    (difference,) = judge(log)
    assert said in difference


def test_commit_lsns_rise() -> None:
    log = [replace(event, commit_lsn=5000 - event.commit_lsn) for event in written()]
    assert "its commit_lsn 0/BB8 is not above 0/FA0" in "\n".join(judge(log))


def test_commit_lsn_is_where_the_wal_has_the_commit() -> None:
    in_wal = {10: 1000, 11: 2000, 12: 3000, 13: 4000}
    assert verdict(WriterRecord(COMMITTED, commit_lsns=in_wal), written()) == []
    (difference, *_) = verdict(WriterRecord(COMMITTED, commit_lsns={**in_wal, 12: 1500}), written())
    assert "transaction 12: its commit_lsn is 0/BB8, and the WAL has its commit at 0/5DC" in difference


OLD = ("shop.orders", ("7",))
OLD_VALUES: Values = {"id": "7", "total": "9.00", "version": "1"}


def read(values: Values = OLD_VALUES, idx: int = 1) -> ReceivedEvent:
    return ReceivedEvent(1, 500, idx, 500, RowChange("shop.orders", "read", ("7",), values))


def judge_read(*events: ReceivedEvent) -> list[str]:
    log = [replace(event, seq=event.seq + len(events)) for event in written()]
    return verdict(WriterRecord(COMMITTED, {ROLLED_BACK}, before={OLD: OLD_VALUES}), [*events, *log])


def test_a_row_from_before_is_read_as_it_was() -> None:
    assert judge_read(read()) == []
    assert "total is '8.00', and the writer has '9.00'" in judge_read(read({**OLD_VALUES, "total": "8.00"}))[0]


def test_a_row_from_before_that_is_never_read_is_missing() -> None:
    assert judge_read() == ["shop.orders 7 existed before the server, and the log does not have it"]


def test_places_of_rows_that_are_read_begin_with_one() -> None:
    assert "0/1F4, 1 was expected" in judge_read(read(idx=0))[0]


def test_a_row_that_is_read_must_be_there() -> None:
    (difference,) = verdict(
        WriterRecord(COMMITTED, {ROLLED_BACK}), [read(), *(replace(e, seq=e.seq + 1) for e in written())]
    )
    assert "a row that is not there" in difference
