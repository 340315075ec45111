"""A relation as staging rows refer to it."""

from __future__ import annotations

from pipeline.capture.schema_history.versions import TableVersion
from pipeline.wal.encoding import RowEncoder
from pipeline.wal.messages import UNCHANGED, Row
from pipeline.wal.tuples import TupleEncoder


class StagedRelation:
    """A relation as rows refer to it: its id in the history and how its rows are encoded."""

    def __init__(self, relation_id: int, form: TableVersion) -> None:
        self.id = relation_id
        names = [column.name for column in form.columns]
        self._key = [names.index(name) for name in form.key_columns if name in names]
        self.encoder = RowEncoder([(column.name, column.base_type_oid) for column in form.columns], self._key)
        self.encode_tuple = TupleEncoder(self.encoder).encode
        self.head = b""
        """What rows of the transaction and action `head_of` begin their change with."""
        self.head_of = (-1, b"")

    def known_of(self, old: Row | None, *, full: bool) -> Row | None:
        """What an old tuple says: with a bare key (`K`) nothing of the other columns, which it has as NULL."""
        if old is None or full:
            return old
        return [value if column in self._key else UNCHANGED for column, value in enumerate(old)]
