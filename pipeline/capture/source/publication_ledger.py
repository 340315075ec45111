"""Compares what publications publish now with what is stored: if they publish less, changes are missing.

pgoutput reads the catalog as it was when a change was written. A publication that publishes less silently leaves
changes out, and one that was dropped and recreated does not exist for earlier changes (postgres-facts.md 1, 4).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipeline.capture.schema_history import baselines, introspection
from pipeline.capture.source import captured_tables, sources
from pipeline.capture.source.sources import ReplicationSource
from pipeline.errors import PublicationChangedError
from pipeline.postgres import queries
from pipeline.postgres.connections import Connection
from pipeline.postgres.queries import statement

Members = dict[str, list[Any]]
"""Maps the oid of a table or schema to [oid of the membership, schema, table or ""]."""


@dataclass(frozen=True)
class PublicationState:
    """A publication with its members.

    A membership gets a new oid when it is dropped and added again, and when its filter or columns change.
    """

    name: str
    oid: int
    actions: list[str]
    all_tables: bool
    via_root: bool
    generated: str | None
    tables: Members
    schemas: Members


def read_publications(source: Connection, names: Sequence[str]) -> dict[str, PublicationState]:
    """Return these publications as they are now; those that do not exist are left out."""
    found = queries.rows(
        source, PublicationState, statement("capture.source", "publications"), {"publications": list(names)}
    )
    return {publication.name: publication for publication in found}


def to_json(published: dict[str, PublicationState]) -> dict[str, Any]:
    """Return the value of `pipeline.sources.published`."""
    return {name: vars(publication) for name, publication in published.items()}


def from_json(stored: dict[str, Any]) -> dict[str, PublicationState]:
    """Read the value that `to_json` returned."""
    return {name: PublicationState(**publication) for name, publication in stored.items()}


def known_publications(stored: ReplicationSource) -> dict[str, PublicationState]:
    """Return the stored state of the publications in use; an older server stored only oids of publications that it
    made.
    """
    made = {
        name: PublicationState(name, oid, [], False, False, None, {}, {}) for name, oid in stored.publications.items()
    }
    return from_json(stored.published) or made


def named_tables(published: dict[str, PublicationState]) -> dict[int, str]:
    """Return the tables that publications name, by oid; tables of whole schemas or databases are not among them."""
    return {
        int(oid): f"{schema}.{name}"
        for publication in published.values()
        for oid, (_, schema, name) in publication.tables.items()
    }


def _with_updates(published: dict[str, PublicationState]) -> dict[str, PublicationState]:
    return {name: each for name, each in published.items() if {"update", "delete"} <= set(each.actions)}


def find_recreated(stored: dict[str, PublicationState], now: dict[str, PublicationState]) -> str | None:
    """Return which publication was dropped or recreated, as text; None if none was."""
    for name, before in stored.items():
        if name not in now:
            return f'publication "{name}" was dropped'
        if now[name].oid != before.oid:
            return f'publication "{name}" was dropped and recreated'
    return None


def find_narrowed(
    stored: dict[str, PublicationState], now: dict[str, PublicationState], dropped: Collection[int]
) -> str | None:
    """Return which publication publishes less than before, as text; None if none does.

    `dropped`: tables and schemas that no longer exist.
    """
    for name, before in stored.items():
        if name in now and (less := _less(before, now[name], dropped)):
            return f'publication "{name}" {less}'
    return None


def _less(before: PublicationState, now: PublicationState, dropped: Collection[int]) -> str | None:
    if left_out := [action for action in before.actions if action not in now.actions]:
        return f"no longer publishes {', '.join(left_out)}"
    if before.via_root != now.via_root:
        return "has another publish_via_partition_root than before"
    if before.all_tables and not now.all_tables:
        return "is no longer for all tables"
    if before.generated == "s" and now.generated != "s":
        return "no longer publishes generated columns"
    return _lost("table", before.tables, now.tables, dropped) or _lost("schema", before.schemas, now.schemas, dropped)


def _lost(kind: str, before: Members, now: Members, dropped: Collection[int]) -> str | None:
    for oid, (member, *names) in before.items():
        name = ".".join(filter(None, names))
        if int(oid) in dropped:
            continue
        if oid not in now:
            return f"no longer has {kind} {name}"
        if now[oid][0] != member:
            return f"lost {kind} {name} and got it again, or publishes other rows or columns of it"
    return None


def find_dropped(source: Connection, stored: dict[str, PublicationState]) -> set[int]:
    """Return the tables and schemas of these publications that no longer exist."""
    members = [int(oid) for publication in stored.values() for oid in (*publication.tables, *publication.schemas)]
    return {
        row[0] for row in source.execute(statement("capture.source", "dropped_members"), {"oids": members}).fetchall()
    }


def find_difference(
    source: Connection, stored: dict[str, PublicationState], now: dict[str, PublicationState]
) -> str | None:
    """Return what is no longer published, as text; None if nothing is missing. Additions are not a difference."""
    if stored == now:
        return None
    return find_recreated(stored, now) or find_narrowed(stored, now, find_dropped(source, stored))


class PublicationLedger:
    """The stored state of the publications in use, updated with each change that we make. Only inside of
    `publishing`.

    A membership is forgotten before we drop it and stored after we add it. So an interrupted change never looks like
    another user's change, and a membership that another user drops stays stored.
    """

    def __init__(
        self,
        source: Connection,
        stored: dict[str, PublicationState],
        save: Callable[[dict[str, PublicationState], dict[str, PublicationState]], None],
        made: Callable[[str, int], None],
        before_publishing: Callable[[Sequence[int]], None] = lambda _: None,
    ) -> None:
        """`save` gets what was published and what is now, to store it; `made` stores name and oid of a new
        publication.

        `before_publishing` is called with tables that are about to be published and whose stream will lack some
        facts.
        """
        self._source = source
        self._save = save
        self.stored = stored
        self.made = made
        self.before_publishing = before_publishing

    def check(self, names: Sequence[str]) -> dict[str, PublicationState]:
        """Return the publications as they are now. Raises PublicationChangedError if they publish less than is
        stored.
        """
        now = read_publications(self._source, [*names, *self.stored])
        if less := find_difference(self._source, self.stored, now):
            raise PublicationChangedError(less)
        self._store({name: now[name] for name in names if name in now})
        return self.stored

    def forget(self, publication: str, tables: Collection[int]) -> None:
        """Forget these tables, which are about to be dropped from the publication."""
        known = self.stored[publication]
        rest = {oid: member for oid, member in known.tables.items() if int(oid) not in tables}
        self._store({**self.stored, publication: replace(known, tables=rest)})

    def added(self, publication: str, tables: Collection[int]) -> None:
        """Store these tables, which were added to the publication."""
        now = read_publications(self._source, [publication])
        known = self.stored[publication]
        found = now[publication].tables if publication in now else {}
        new = {oid: member for oid, member in found.items() if int(oid) in tables}
        self._store({**self.stored, publication: replace(known, tables={**known.tables, **new})})

    def _store(self, published: dict[str, PublicationState]) -> None:
        if published != self.stored:
            self._save(self.stored, published)
            self.stored = published


def open_ledger(
    source: Connection, pipeline: Connection, source_id: uuid.UUID, stored: dict[str, Any]
) -> PublicationLedger:
    """Return the ledger of a source in the pipeline database; `stored` must have been read inside of `publishing`."""
    return PublicationLedger(
        source,
        from_json(stored),
        lambda before, now: _save(source, pipeline, source_id, before, now),
        lambda name, oid: sources.add_publication(pipeline, source_id, name, oid),
        lambda oids: _describe(source, pipeline, source_id, oids),
    )


def _save(
    source: Connection,
    pipeline: Connection,
    source_id: uuid.UUID,
    before: dict[str, PublicationState],
    now: dict[str, PublicationState],
) -> None:
    stored = sources.find(pipeline, source_id)
    changed = captured_tables.find_change(source, named_tables(before), named_tables(now))
    with_updates = named_tables(_with_updates(now)).keys() - named_tables(_with_updates(before)).keys()
    with pipeline.transaction():
        sources.store_published(pipeline, source_id, to_json(now))
        captured_tables.record_updates_begin(pipeline, source_id, with_updates & named_tables(before).keys())
        if changed and stored is not None:
            captured_tables.record_change(pipeline, source_id, stored.epoch, changed)


def _describe(source: Connection, pipeline: Connection, source_id: uuid.UUID, oids: Sequence[int]) -> None:
    """Record roots and keys as they are now: a worker that lags may find them changed or dropped, and cannot know."""
    stored = sources.find(pipeline, source_id)
    if stored is None:
        return
    made = stored.publications
    for oid in baselines.find_unknown(pipeline, source_id, stored.epoch, oids):
        found = introspection.describe_current(source, oid, stored.slot, list(made), list(made.values()))
        if found is not None:
            baselines.record(pipeline, source_id, stored.epoch, found.version)
