"""A relation to which staged rows refer."""

from __future__ import annotations

from pipeline.capture.schema_history.versions import HistoryVersion
from pipeline.wal.encoding import RowEncoder
from pipeline.wal.messages import UNCHANGED, Row
from pipeline.wal.tuples import TupleEncoder


class StagedRelation:
    """The id of a relation's table version, and the encoders of its rows."""

    def __init__(self, relation_id: int, version: HistoryVersion) -> None:
        self.id = relation_id
        names = [column.name for column in version.columns]
        self._key = [names.index(name) for name in version.key_columns if name in names]
        self.encoder = RowEncoder([(column.name, column.base_type_oid) for column in version.columns], self._key)
        tuples = TupleEncoder(self.encoder)
        self.encode_tuple = tuples.encode
        self.encode_texts = tuples.encode_texts
        self.change_head = b""
        """The first bytes of a change: the same for all rows of one transaction with the same action."""
        self.change_head_of = (-1, b"")
        """The commit_lsn and the action for which `change_head` was made."""
        self.last_change = (0, 0)
        """commit_lsn and xid of the last transaction with rows of the relation."""

    def known_values(self, old: Row | None, *, full: bool) -> Row | None:
        """Return the known values of an old tuple: one of only the key (`K`) has NULL for all other columns, whatever
        they hold.
        """
        if old is None or full:
            return old
        return [value if column in self._key else UNCHANGED for column, value in enumerate(old)]
