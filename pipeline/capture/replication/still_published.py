"""Compares the publications in use with what is stored of them, at each start and while the worker runs."""

from __future__ import annotations

import uuid

from pipeline.capture.source import publication_form, publication_ledger, sources
from pipeline.capture.source.sources import ReplicationSource
from pipeline.capture.source.timeline import ADOPT
from pipeline.errors import PublicationChangedError
from pipeline.log.staging import progress
from pipeline.postgres.connections import Connection
from pipeline.wal import lsn


def require_published(source: Connection, pipeline: Connection, stored: ReplicationSource) -> None:
    """Raises PublicationChangedError if a publication in use publishes less than before, or than it was made for."""
    if _less(source, stored) is None:
        return
    with sources.publishing(pipeline, source):  # our own publisher may have been in the middle of a change
        fresh = sources.find(pipeline, stored.id)
        if fresh is not None and (less := _less(source, fresh)):
            raise _published_less(pipeline, fresh, less)


def _less(source: Connection, stored: ReplicationSource) -> str | None:
    known = publication_ledger.known_publications(stored)
    return publication_ledger.find_difference(
        source, known, publication_ledger.read_publications(source, list(known))
    ) or publication_form.find_difference(source, stored.publications)


def require_still_published(source: Connection, pipeline: Connection, source_id: uuid.UUID) -> None:
    """Check publications as `require_published` does, while the worker runs, every few seconds.

    If nothing has changed, this takes one query in each database. Additional members are stored.
    """
    stored = sources.find(pipeline, source_id)
    if stored is None or publication_ledger.read_publications(
        source, list(stored.published)
    ) == publication_ledger.from_json(stored.published):
        return
    with sources.publishing(pipeline, source):
        stored = sources.find(pipeline, source_id) or stored
        if less := _less(source, stored):
            raise _published_less(pipeline, stored, less)
        publication_ledger.open_ledger(source, pipeline, source_id, stored.published).check(list(stored.published))


def _published_less(pipeline: Connection, stored: ReplicationSource, less: str) -> PublicationChangedError:
    position = progress.stored_position(pipeline, stored.id)
    upto = "" if position is None else f"; the log has everything else up to {lsn.show(position)}"
    return PublicationChangedError(f"{less}; changes that it did not publish are not in the log{upto}; {ADOPT}")
