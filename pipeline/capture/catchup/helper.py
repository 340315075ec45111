"""The helper process: stages one part of a backlog, which it reads from a temporary copy of the slot."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Sequence
from functools import partial

import psycopg
from setproctitle import setproctitle

from pipeline import logs
from pipeline.capture.catchup import copying, plan_reader, store
from pipeline.capture.catchup.part_registry import PartRegistry
from pipeline.capture.catchup.plan import BacklogPart
from pipeline.capture.catchup.worker import PartWorker
from pipeline.capture.replication.stream import ReplicationStream
from pipeline.capture.source import own_tables, slots, sources, timeline
from pipeline.capture.source.sources import ReplicationSource
from pipeline.capture.source.walsender import application_name
from pipeline.config import settings
from pipeline.config.settings import Config
from pipeline.errors import DatabaseUnavailableError, FencedError, PipelineError, SlotInUseError
from pipeline.log.staging.worker_claim import WorkerClaim, connect_staging
from pipeline.log.writing.log_writer import LogWriter, WritingSettings
from pipeline.log.writing.partitioned_part import PartTurn
from pipeline.postgres import connections, waits
from pipeline.postgres.connections import Connection
from pipeline.process.child import RETRY
from pipeline.process.signals import StopSignal, in_loop, in_thread, live_with_parent, read_settings

logger = logging.getLogger(__name__)

RETRIED: tuple[type[PipelineError], ...] = (DatabaseUnavailableError, SlotInUseError, FencedError)
"""Errors after which a helper begins its part again. After others worker 0 takes the part, and meets the error in
order."""


COMMAND = (sys.executable, "-m", "pipeline.capture.catchup.helper")
"""The command that starts a helper if there is no fork server."""


def task(config: Config, publications: Sequence[str], worker: int) -> str:
    """Return the line that tells a helper its part, for `main` to read."""
    return json.dumps({"settings": config.to_json(), "publications": publications, "worker": worker})


def main() -> int:
    """Read the `task` from the first line of standard input and do it; returns the exit status."""
    if (given := read_settings()) is None:
        return RETRY
    given_task = json.loads(given)
    worker, publications = given_task["worker"], given_task["publications"]
    config = settings.from_json(given_task["settings"])
    setproctitle(f"pipeline: catch-up {worker}")
    logs.setup(config.log_level, config.log_format, f"catch-up {worker}")
    stop = StopSignal(ignore_interrupt=True)
    waits.end_at_stop(stop)
    live_with_parent()
    try:
        asyncio.run(_stage(config, worker, publications, stop))
    except PipelineError as error:
        logger.warning("%s", error, extra={"action": "catchup.failed"})
        return RETRY if isinstance(error, RETRIED) else error.exit_code
    except Exception:
        logger.exception("unexpected error", extra={"action": "catchup.failed"})
        return RETRY
    return 0


async def _stage(config: Config, worker: int, publications: Sequence[str], stop: StopSignal) -> None:
    name = f"pipeline catch-up {worker}"
    with (
        connections.connect(config.source, "source", name=name) as source,
        store.connect(config.database, name) as pipeline,
    ):
        stored = sources.find(pipeline, config.source_id)
        part = _part(pipeline, stored, worker)
        if stored is None or part is None or part.complete:
            return
        stream = ReplicationStream(config.source, application_name(stored.id, worker))
        try:
            timeline.require_same(stored, stream.identify())
            async with await connect_staging(config.database) as staging:
                claim = await WorkerClaim.acquire(staging, stored.id, worker)
                turn = None
                if part.first_seq is not None:
                    give_up = partial(store.forget_seqs, staging, stored.id, worker)
                    turn = PartTurn(part.first_seq, give_up, lambda: bool(stop))
                writer = await LogWriter.open(staging, claim, WritingSettings.of(config), part=turn)
                start = claim.commit_lsn or claim.position
                try:
                    await _copy_and_stage(
                        config, stream, start, writer, source, pipeline, stored, part, publications, stop
                    )
                finally:
                    await writer.close()
        except psycopg.Error as error:
            if connections.is_ours(error):
                raise
            raise connections.unavailable_one(source, config.source, config.database, error) from error
        finally:
            stream.close()


def _part(pipeline: Connection, stored: ReplicationSource | None, worker: int) -> BacklogPart | None:
    parts = plan_reader.read_plan(pipeline, stored.id) if stored else []
    return next((part for part in parts if part.worker == worker), None)


async def _copy_and_stage(
    config: Config,
    stream: ReplicationStream,
    start: int,
    writer: LogWriter,
    source: Connection,
    pipeline: Connection,
    stored: ReplicationSource,
    part: BacklogPart,
    publications: Sequence[str],
    stop: StopSignal,
) -> None:
    """Copy the slot and stage from `start` on, which is the last staged transaction: it is replayed and compared."""
    name = slots.part_name(stored.slot, part.worker)
    copying.remove_leftover(source, name)
    copied = await in_thread(copying.copy_slot, stream, stored.slot, name, start)
    if stop:
        return
    stream.start(name, copied.begins_at, publications)
    own = own_tables.read(source, pipeline, config.events_tables)
    registry = PartRegistry(source, pipeline, stored, publications, part.worker, name, own=own)
    worker = PartWorker(stream, writer, registry, part.until_lsn, copied.catalog_xmin)
    stop.then(in_loop(worker.stop))
    logger.info("streaming", extra={"action": "catchup.streaming", "slot": name})
    await worker.run()


if __name__ == "__main__":
    sys.exit(main())
