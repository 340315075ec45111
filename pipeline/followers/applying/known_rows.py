"""SQL that says by what a fold knows a row: by its key, or by all of its values where two rows may have one key.

A key that is deferrable holds at a commit only, and nothing in the log says that it is. With it the replica identity
can only be `full`: so where events have old rows as a whole, their values tell rows apart. Two rows that are equal in
all of them are the same to a fold.
"""

from __future__ import annotations

from psycopg import sql

from pipeline.followers.applying import rendering
from pipeline.followers.applying.followed_tables import FollowedTable

_BY_KEY: dict[str, sql.Composable] = {
    "contents": sql.SQL(""),
    "left": sql.SQL("e.left_pk"),
    "known_by": sql.SQL("e.record_pk"),
}


def parts(table: FollowedTable) -> dict[str, sql.Composable]:
    """Of the statements that fold: what they read besides, what an update leaves, and what the row is afterwards."""
    renamed = any(len(column.source.names) > 1 for column in table.columns)
    # A partition may have another identity than the next.
    if not table.full or not table.key or renamed or table.partitions:
        return _BY_KEY
    # The old text of a json value may not be in the log.
    kept = sql.SQL("array[{}]::text[]").format(
        sql.SQL(", ").join(rendering.name(column.source) for column in table.columns if column.as_text)
    )
    given = {"kept": kept, "names": rendering.names(table.columns), "lenient": rendering.lenient(table)}
    contents = sql.SQL(
        ", md5((e.record - {kept})::text) as content,"
        " case when e.action = 'update' and e.changes - {kept} <> '{{}}'"
        " then md5(((e.record || e.changes) - {kept})::text) end as left_content,"
        " not {lenient} and e.record ?& {names} and (e.action <> 'update' or e.changes is not null) as is_told"
    ).format(**given)
    # Where keys are neither changed nor given up and taken, no two rows can have had one.
    known = (
        "case when (select bool_and(v.is_told) from event v) and ("
        "exists (select from event v where v.left_pk is not null)"
        " or exists (select from event v group by v.record_pk having min(v.seq) filter (where v.action = 'insert')"
        " < max(v.seq) filter (where v.action = 'delete'))"
        ") then e.{} else e.{} end"
    )
    return {
        "contents": contents,
        "left": sql.SQL(known).format(sql.SQL("left_content"), sql.SQL("left_pk")),
        "known_by": sql.SQL(known).format(sql.SQL("content"), sql.SQL("record_pk")),
    }
