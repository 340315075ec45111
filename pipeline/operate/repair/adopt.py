"""Begin a new epoch on request: the source's history restarted, or the log must continue without some changes.

An interrupted run can be started again: the last step is one transaction, and all others can be repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from pipeline.capture.catchup import plan_reader
from pipeline.capture.catchup import store as parts
from pipeline.capture.replication import prepare
from pipeline.capture.replication.relation_registry import RelationRegistry
from pipeline.capture.replication.stream import ReplicationStream
from pipeline.capture.source import (
    captured_tables,
    own_tables,
    publication_form,
    publication_ledger,
    seen_tables,
    slot_creation,
    slot_mark,
    slots,
    sources,
)
from pipeline.capture.source.publication_form import KEYLESS_SUFFIX
from pipeline.capture.source.publications import PublicationSet
from pipeline.capture.source.slots import Slot
from pipeline.capture.source.sources import ReplicationSource, SourceEpoch
from pipeline.capture.source.walsender import SystemIdentity, application_name
from pipeline.config.settings import Config
from pipeline.consumers.queue.queue_filler import QueueFiller
from pipeline.errors import (
    PipelineError,
    PublicationMissingError,
    ReplicationError,
    SourceChangedError,
)
from pipeline.log import jumps, recent_transactions, tables
from pipeline.log.shuffling import watermark
from pipeline.log.shuffling.shuffler import Shuffler
from pipeline.log.staging import progress, segments
from pipeline.log.staging.progress import StagedPosition
from pipeline.log.staging.worker_claim import WorkerClaim, connect_staging
from pipeline.log.table import EventsTable, last_seq
from pipeline.operate.repair import gap
from pipeline.operate.repair.adoption_report import AdoptionReport
from pipeline.operate.repair.gap import GapConsent
from pipeline.operate.repair.take_over import jump, take_over
from pipeline.operate.repair.upgraded import require_upgraded
from pipeline.postgres import migrations, role_locks, waits
from pipeline.postgres.connections import Connection
from pipeline.snapshots import known_tables
from pipeline.wires.pgdeltastream.sessions import bounds, store

ALL_ROLES = ("serve", "replication", "snapshot", "shuffle")
"""The roles that a running server holds; all must be free before an epoch begins."""
RESTORED = "`pipeline sources adopt --restored` said that the log was restored"


def adopt(
    config: Config,
    agree: GapConsent = lambda _: None,
    *,
    reread: bool = False,
    restored: bool = False,
    upgraded: bool = False,
) -> AdoptionReport | None:
    """Begin a new epoch at the source as it is now; None, with nothing changed, if our positions are still valid.

    `reread`: the next server compares the tables with the log, and appends rows that differ. `restored`: the log jumps,
    as it does whenever an epoch begins. `upgraded`: pg_upgrade has made the source's cluster and kept the slot, so the
    epoch begins without a gap.

    If this database has no positions, a slot with another database's mark is taken over. `agree` is called before any
    change, and may raise to prevent it. Raises PipelineError if a server runs, or replication is not possible.
    """
    source, pipeline = prepare.connect(config, name="pipeline adopt")
    with source, pipeline:
        if migrations.current_revision(pipeline) is None:
            return take_over(config, source, pipeline, None, agree)
        migrations.require_head(pipeline)
        stored = sources.find(pipeline, config.source_id)
        staged = progress.staged(pipeline, stored.id) if stored else None
        with hold_all_roles(pipeline):
            if stored is None or staged is None:
                return take_over(config, source, pipeline, stored, agree)
            adopted = _Adoption(config, source, pipeline, stored, staged, reread, upgraded).run(agree)
            if adopted is None and restored:
                jump(config, source, pipeline, RESTORED)
            return adopted


class _Adoption:
    def __init__(
        self,
        config: Config,
        source: Connection,
        pipeline: Connection,
        stored: ReplicationSource,
        staged: StagedPosition,
        reread: bool,
        upgraded: bool,
    ) -> None:
        self._config = config
        self._source = source
        self._pipeline = pipeline
        self._stored = stored
        self._staged = staged
        self._reread, self._upgraded = reread, upgraded
        self._table = EventsTable.parse(config.events_table)

    def run(self, agree: GapConsent) -> AdoptionReport | None:
        prepare.require_fit(self._source)
        slot = slots.find_ours(self._source, self._config.slot, self._stored.id)
        if slot is not None:
            slots.end_walsender(self._source, slot)
        stream = ReplicationStream(self._config.source, application_name(self._stored.id))
        try:
            identity = stream.identify()
            if self._upgraded:
                where = self._source, self._pipeline, self._stored, self._staged.position
                require_upgraded(*where, slots.find(self._source, self._config.slot), identity)
            reasons = self._differences(identity) or asyncio.run(self._replay_differs(stream))
        finally:
            stream.close()
        if not reasons:
            return None
        causes = [_cause(reason) for reason in reasons]
        agree(
            gap.read_gap(
                self._pipeline,
                self._table,
                self._stored,
                self._staged.position,
                identity,
                causes,
                self._sessions(),
                upgraded=self._upgraded,
            )
        )
        jump(self._config, self._source, self._pipeline, "; ".join(causes))
        asyncio.run(self._drain_staging())
        ended = self._sessions()
        bounds.end_all(
            self._config,
            self._source,
            self._pipeline,
            self._stored.id,
            f"epoch {self._stored.epoch + 1} of the source began",
        )
        return replace(self._begin(identity, reasons), sessions=ended)

    def _sessions(self) -> list[str]:
        """The slots of clients' sessions. They are dropped, because their positions belong to the epoch that ends."""
        return [each.slot for each in store.live(self._pipeline) if each.source_id == self._stored.id]

    def _differences(self, identity: SystemIdentity) -> list[ReplicationError]:
        """Every reason why our positions are no longer valid."""
        found: list[ReplicationError] = []
        checks = prepare.continuity_checks(self._config, self._source, self._pipeline, self._stored, identity)
        for check in checks.values():
            try:
                check()
            except SourceChangedError as error:
                found.append(error)
        return found

    async def _replay_differs(self, stream: ReplicationStream) -> list[ReplicationError]:
        """The reasons that only the stream shows: the slot does not replay the staged changes. Confirms nothing."""
        own = own_tables.read(self._source, self._pipeline, self._config.events_tables)
        replay = RelationRegistry(self._source, self._pipeline, self._stored, own=own).replay(0)
        try:
            if not replay.verified:
                stream.start(self._config.slot, 0, list(publication_ledger.known_publications(self._stored)))
            while not replay.verified:
                replay.skip(await stream.read())
                if replay.reply_requested:
                    stream.send_status(replay.received, 0)
        except (SourceChangedError, PublicationMissingError) as error:
            return [error]
        return []

    async def _drain_staging(self) -> None:
        """Drop incomplete transactions from staging, and move complete ones to the log before the new epoch begins."""
        async with await connect_staging(self._config.database) as staging:
            await parts.abandon_plan(staging, self._stored.id, plan_reader.read_plan(self._pipeline, self._stored.id))
            await WorkerClaim.acquire(staging, self._stored.id)
        self._staged = progress.staged(self._pipeline, self._stored.id) or self._staged
        config = self._config
        shuffler = Shuffler(
            self._pipeline,
            self._stored.id,
            self._table,
            stopping=lambda: False,
            source_clock=lambda: jumps.clock(self._source),
            queues=QueueFiller(self._pipeline, self._stored.id, self._table),
            routes=config.routes,
            on_poison=config.on_poison,
        )
        while shuffler.step() >= 0:
            continue
        if shuffler.poison is not None:
            raise PipelineError(str(shuffler.poison))
        segments.empty_drained(self._pipeline)
        if segments.read_pending(self._pipeline, self._stored.id):
            raise PipelineError("staging cannot be emptied; run `pipeline verify` to see what is wrong")

    def _begin(self, identity: SystemIdentity, reasons: list[ReplicationError]) -> AdoptionReport:
        with sources.publishing(self._pipeline, self._source):
            there = publication_ledger.read_publications(self._source, self._names())
            publications, now = self._publish(identity)
            slot = slots.find(self._source, self._config.slot)
            missing = any(isinstance(reason, PublicationMissingError) for reason in reasons)
            keep = slot is not None and not missing and self._sends_all(slot, identity, there, now)
            start = (slot.confirmed_lsn or 0) if slot is not None and keep else self._new_slot(slot)
            known = self._in_the_log(start) if keep else set()
            stored = replace(
                prepare.describe_source(self._stored, self._config, self._source, identity),
                epoch=self._stored.epoch + 1,
                publications=publications.made,
                published=publication_ledger.to_json(now),
            )
            self._commit(stored, start, known, "; ".join(map(_cause, reasons)))
            slot_mark.write_mark(self._source, self._pipeline, self._config.publication, self._config.slot)
        return AdoptionReport(
            epoch=stored.epoch,
            reasons=[_cause(reason) for reason in reasons],
            left_at=self._staged.position,
            starts_at=start,
            kept_slot=keep,
            known=len(known),
            rereads=self._reread,
            upgraded=self._upgraded,
        )

    def _names(self) -> list[str]:
        return [
            *publication_ledger.known_publications(self._stored),
            self._config.publication,
            self._config.publication + KEYLESS_SUFFIX,
        ]

    def _publish(
        self, identity: SystemIdentity
    ) -> tuple[PublicationSet, dict[str, publication_ledger.PublicationState]]:
        """Update the publications; their state is stored only with the epoch."""
        fresh = sources.find(self._pipeline, self._stored.id) or self._stored
        made = fresh.publications
        if identity.system_identifier != fresh.system_identifier:  # pg_upgrade, for instance, changes oids
            there = publication_ledger.read_publications(self._source, list(made))
            made = {name: publication.oid for name, publication in there.items()}
        publication_form.restore(self._source, made)
        ledger = publication_ledger.PublicationLedger(
            self._source,
            {},
            lambda *_: None,
            lambda name, oid: sources.add_publication(self._pipeline, fresh.id, name, oid),
        )
        publisher = prepare.publisher(self._config, self._source, self._pipeline)
        publications = publisher.ensure(made, ledger)
        return publications, ledger.stored

    def _sends_all(
        self,
        slot: Slot,
        identity: SystemIdentity,
        there: dict[str, publication_ledger.PublicationState],
        now: dict[str, publication_ledger.PublicationState],
    ) -> bool:
        """True if the slot can be read from its position: each publication must have existed since then."""
        if slot.invalidated:
            return False
        elsewhere = identity.system_identifier != self._stored.system_identifier
        known = publication_ledger.known_publications(self._stored)
        return all(
            name in there and (elsewhere or (name in known and known[name].oid == publication.oid))
            for name, publication in now.items()
        )

    def _new_slot(self, slot: Slot | None) -> int:
        if slot is not None:
            slots.end_walsender(self._source, slot)
            slots.drop(self._source, slot.name)
        with waits.report_waits(partial(slot_creation.subject, self._config.slot)):
            return slot_creation.create(self._config.source, self._pipeline, self._config.slot)

    def _in_the_log(self, from_lsn: int) -> set[tuple[int, int]]:
        """The transactions in the log that the slot may send again, also those of earlier epochs."""
        found: set[tuple[int, int]] = set()
        for table in tables.with_known(self._pipeline, self._config.events_tables):
            upto = last_seq(self._pipeline, table)
            for epoch, after_seqs in sources.epochs(self._pipeline, self._stored.id):
                found |= recent_transactions.transactions_since(
                    self._pipeline, table, self._stored.id, epoch, from_lsn, upto
                )
                upto = after_seqs.get(str(table), 0)
        return found

    def _commit(self, stored: ReplicationSource, start: int, known: set[tuple[int, int]], reason: str) -> None:
        written = tables.with_known(self._pipeline, self._config.events_tables)
        after = {str(table): last_seq(self._pipeline, table) for table in written}
        where = stored.id, stored.epoch, stored.system_identifier, stored.timeline, start
        left_at = start if self._upgraded else self._staged.position  # equal: nothing is missing in between
        epoch = SourceEpoch(*where, left_at, after[str(self._table)], reason, after)
        changed = None
        if stored.system_identifier == self._stored.system_identifier:  # oids of another cluster cannot be compared
            before = publication_ledger.named_tables(publication_ledger.known_publications(self._stored))
            after_all = publication_ledger.named_tables(publication_ledger.from_json(stored.published))
            changed = captured_tables.find_change(self._source, before, after_all)
        with self._pipeline.transaction():
            if changed:
                captured_tables.record_change(self._pipeline, stored.id, stored.epoch, changed)
            sources.change(self._pipeline, stored)
            sources.begin_epoch(self._pipeline, epoch)
            seen_tables.begin(self._source, self._pipeline, stored.id, stored.epoch)
            sources.carry_transactions(self._pipeline, stored.id, known)
            progress.restart(self._pipeline, stored.id, stored.epoch, start)
            watermark.restart(self._pipeline, stored.id, stored.epoch)
            sources.read_no_tables(self._pipeline, stored.id)
            # An earlier request for a comparison may not be fulfilled yet.
            if self._reread or sources.requested_reread(self._pipeline, stored.id) is not None:
                sources.request_reread(self._pipeline, stored.id, stored.epoch)
            elif self._upgraded:
                known_tables.carry_over(self._pipeline, stored.id, stored.epoch)


def _cause(reason: ReplicationError) -> str:
    """The reason without its remedy, which is this very command."""
    return str(reason).partition("; `pipeline sources adopt`")[0]


@contextmanager
def hold_all_roles(pipeline: Connection) -> Iterator[None]:
    """Hold all roles, so that no server starts. Sends signs of life, so that it does not count as frozen."""
    for role in ALL_ROLES:
        if not role_locks.try_acquire(pipeline, role):
            holder = role_locks.states(pipeline).get(role)
            who = f"{holder.server}, pid {holder.pid}" if holder else "another server"
            raise PipelineError(f"a server is running ({role} is held by {who}); stop it first")
    with role_locks.keep_alive(pipeline, lambda _: None):  # other uses notice a broken connection
        yield
