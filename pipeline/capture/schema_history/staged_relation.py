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
        self.head = b""
        """The first bytes of a change, shared by rows of the transaction and action `head_of`."""
        self.head_of = (-1, b"")
        self.changed = (0, 0)
        """commit_lsn and xid of the last transaction with rows of the relation."""

    def known_of(self, old: Row | None, *, full: bool) -> Row | None:
        """Return the known values of an old tuple. A key alone (`K`) has NULL for all other columns, whatever they
        hold.
        """
        if old is None or full:
            return old
        return [value if column in self._key else UNCHANGED for column, value in enumerate(old)]
