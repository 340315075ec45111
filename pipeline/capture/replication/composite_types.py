"""Composite types in the values of captured tables. No message reports that a type was altered, so the catalog is
compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from pipeline.capture.schema_history.versions import KnownVersion
from pipeline.postgres.connections import Connection

_ATTRIBUTES = """\
select attrelid::text, jsonb_object_agg(attnum, attname) from pg_catalog.pg_attribute
where attrelid = any(%(oids)s::oid[]) and attnum > 0 and not attisdropped
group by attrelid
"""
"""The attributes of composite types, by number, for the oids of the types' relations."""


class CompositeTypes:
    """The known attributes of composite types, by the oid of the relation that has such types in its values."""

    def __init__(self, known: Iterable[KnownVersion]) -> None:
        self._known = dict[int, dict[str, dict[str, str] | None]]()
        for each in known:
            self.remember(each)

    @property
    def relations(self) -> Collection[int]:
        """Oids of relations with such types in their values."""
        return list(self._known)  # a copy, since another thread may add one

    def remember(self, known: KnownVersion) -> None:
        """Remember the types of this relation as they were for its newest version."""
        self._known.pop(known.version.relation_oid, None)
        if known.fingerprint is not None and known.fingerprint.composites:
            self._known[known.version.relation_oid] = dict(known.fingerprint.composites)

    def altered(self, source: Connection) -> list[int]:
        """Return the relations with types that have other attributes now, and remember the new attributes."""
        if not self._known:
            return []
        types = {int(oid) for types in self._known.values() for oid in types}
        query = _ATTRIBUTES
        now: dict[str, dict[str, str]] = dict(source.execute(query, {"oids": list(types)}).fetchall())
        states = {oid: {each: now.get(each) for each in types} for oid, types in self._known.items()}
        found = [oid for oid, state in states.items() if state != self._known[oid]]
        self._known = states
        return found
