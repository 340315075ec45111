"""Finds which columns of a table's forms are one column: by attnum if that is certain, otherwise by name. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lake.tables.forms import LakeTableForm, ReplicationPlace

_INTEGERS = {20, 21, 23, 26}
_TEXTS = {19, 25, 1043}
NUMERIC = 1700


@dataclass(frozen=True)
class NumberedForm:
    """A form with the numbers of its columns: one number is one column, in all forms.

    `key`: the numbers of the key's columns. `unclear`: columns that were dropped or added since the previous form, if
    it is not known whether one of them was renamed.
    """

    form: LakeTableForm
    numbers: Mapping[str, int]
    key: tuple[int, ...]
    unclear: tuple[str, ...] = ()

    @property
    def place(self) -> ReplicationPlace:
        """The place from which on the form is valid."""
        return self.form.place

    @property
    def table(self) -> str:
        """`schema.table`, by the names of this form."""
        return f"{self.form.schema}.{self.form.name}"

    @property
    def remedy(self) -> str:
        """The remedy in messages: a backfill makes all rows known again."""
        return f"read its rows again: `pipeline backfill start {self.table}`"

    @property
    def identity(self) -> tuple[tuple[int, object], ...]:
        """The columns and types of `record_pk`: while they stay the same, equal values make an equal record_pk."""
        types = {column.name: _text_of(column.type_oid, column.type_modifier) for column in self.form.columns}
        return tuple((self.numbers[name], types[name]) for name in self.form.key if name in self.numbers)


def number_columns(forms: Sequence[LakeTableForm]) -> list[NumberedForm]:
    """Number the columns of a table's forms, which are in the order of their places."""
    found: list[NumberedForm] = []
    by_relation: dict[tuple[str, int, int], NumberedForm] = {}
    made = 0
    for form in forms:
        relation = form.source_id, form.place.epoch, form.relation_oid
        same, before = by_relation.get(relation), found[-1] if found else None
        numbers = _by_attnum(form, same) if same else {}
        reference = same or before
        unclear: tuple[str, ...] = ()
        if reference is not None:
            numbers, unclear = _by_name(form, numbers, reference, before or reference, is_same=same is not None)
        for column in form.columns:
            if column.name not in numbers:
                numbers[column.name] = made
                made += 1
        key = tuple(numbers[name] for name in form.key if name in numbers)
        numbered = NumberedForm(form, numbers, key, unclear)
        found.append(numbered)
        by_relation[relation] = numbered
    return found


def _by_attnum(form: LakeTableForm, before: NumberedForm) -> dict[str, int]:
    known = {column.attnum: before.numbers[column.name] for column in before.form.columns if column.attnum is not None}
    return {column.name: known[column.attnum] for column in form.columns if column.attnum in known}


def _by_name(
    form: LakeTableForm, numbers: dict[str, int], reference: NumberedForm, newest: NumberedForm, *, is_same: bool
) -> tuple[dict[str, int], tuple[str, ...]]:
    """Number the columns whose attnum is not known. Return all numbers, and the names that are still unclear.

    `reference`: the previous form of the same relation; if there is none, the previous form of the table.
    """
    numbers = dict(numbers)
    taken = set(numbers.values())
    attnums = {column.name: column.attnum for column in reference.form.columns}
    came, gone = [], []
    for column in form.columns:
        if column.name in numbers:
            continue
        certain = is_same and column.attnum is not None and None not in attnums.values()
        doubted = is_same and column.attnum is None and column.continues is False
        same = None if certain or doubted else reference.numbers.get(column.name)
        if same is None and not doubted:  # another partition may have it by now
            same = newest.numbers.get(column.name)
            same = None if same in reference.numbers.values() else same
        if same is not None and same not in taken:
            numbers[column.name] = same
            taken.add(same)
        elif not certain:
            came.append(column.name)
    if came:
        known = {column.attnum for column in form.columns}
        gone = [
            name
            for name, same in reference.numbers.items()
            if same not in taken and (not is_same or attnums[name] is None or None in known)
        ]
    return numbers, tuple(sorted({*gone, *came})) if gone else ()


def _text_of(type_oid: int, type_modifier: int) -> object:
    """Return the text format of a type: types whose equal values have the same text share a format."""
    if type_oid in _INTEGERS:
        return "integer"
    if type_oid in _TEXTS:
        return "text"
    if type_oid == NUMERIC and type_modifier >= 0:
        return "numeric", (type_modifier - 4) & 0x7FF
    return type_oid, type_modifier
