"""SQL for the key of a row in the log: what its columns were called then, and values that sort as at the source."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from pipeline.capture.schema_history.versions import Column
from pipeline.comparing import row_text
from pipeline.comparing.compared import Compared

FIRST_OF_OURS = 16_384
"""Oids of types that every database has are smaller (FirstNormalObjectId in access/transam.h)."""
_COMMA = sql.SQL(", ")


def names(table: Compared) -> list[sql.Composable]:
    """Under which names the event `e` has the key's columns."""
    found = []
    for number, column in enumerate(table.key):
        name: sql.Composable = sql.Literal(column.name)
        last = None
        for lsn, idx, called in table.key_names:
            literal = sql.Literal(called[number])
            if called[number] != last:
                name = literal if last is None else row_text.since(table.epoch, lsn, idx, literal, name)
            last = called[number]
        found.append(name)
    return found


def in_log(table: Compared) -> list[sql.Composable]:
    """Texts of the key's values in the event `e`, as the source prints them."""
    return [
        sql.SQL("({})").format(row_text.any_text(column, name))
        for column, name in zip(table.key, names(table), strict=True)
    ]


def types(table: Compared) -> sql.Composable:
    """The key's columns in the event `e`, as `pipeline.relations` describes them."""
    described = sql.SQL("jsonb_build_object('name', {}, 'base_type_oid', {})")
    return sql.SQL("jsonb_build_array({})").format(
        _COMMA.join(
            described.format(name, sql.Literal(column.base_type_oid))
            for column, name in zip(table.key, names(table), strict=True)
        )
    )


def values(columns: Sequence[Column], key_texts: Sequence[sql.Composable], *, typed: bool) -> list[sql.Composable]:
    """The key's values: of types that sort as at the source, wherever every database has them.

    Not `typed`: texts. So are those of other types; then only the order of rows differs from that at the source.
    """
    found: list[sql.Composable] = []
    for column, text in zip(columns, key_texts, strict=True):
        builtin = typed and column.type_oid < FIRST_OF_OURS
        found.append(sql.SQL("{}::{}").format(text, sql.SQL(column.cast)) if builtin else text)
    return found
