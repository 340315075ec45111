"""Every error the server raises on purpose. The text is one plain line: the thing, what is wrong, the remedy.

PipelineError                    exit 1
├── ConfigError                  a setting or argument is wrong; exit 2
│   └── WrongArgument            a reader of the log asked for something that cannot be
├── EmbeddedPostgresError        the Postgres under the data directory cannot be set up, started or stopped
├── SchemaError                  the pipeline database cannot be brought to, or is not at, the revision of this code
├── AddressInUse                 the HTTP port is taken
├── Unavailable                  a database does not answer, or went away; retried while the server runs
├── StorageError                 the pipeline database refused what the server needs to store
│   └── Fenced                   another worker or shuffler has taken over; this one must write nothing more
├── RetentionBusy                another session drops old events at the moment
├── ConsumerError                a reader of the log cannot go on as it is
│   ├── UnknownConsumer          there is no consumer of that name
│   ├── WrongKind                a cursor was wanted where the consumer has records, or the other way round
│   ├── CursorHeld               somebody else reads that cursor
│   ├── ConsumerChanged          it was reset, or another reader has it by now; connect again
│   └── CursorExpired            the log is no longer kept back to that position
├── ExportFailed                 an export did not run, or not to its end; the next one takes up where it ended
│   ├── ExportBusy               another exporter is at work on the same lake
│   └── ExportStopped            it was told to stop; exit 130
└── ReplicationError             the source cannot be replicated from as it is
    ├── SourceUnfit              wal_level, privileges or version of the source
    ├── PublicationMissing       the publication is absent and cannot be made
    ├── SlotMissing              the slot that was named does not exist
    ├── SlotExists               the slot to create is there already
    ├── SlotInUse                another program reads the slot; it may let go, so this is retried while the server runs
    ├── SlotUnusable             the slot is not pgoutput, is two-phase, or of another database
    ├── SourceChanged            our positions cannot go on at this source; `pipeline sources adopt` begins a new epoch
    │   ├── HistoryDiverged      another cluster, a fork of it, or a restored copy: what we staged is not in its history
    │   ├── SlotLost             the slot was dropped, recreated, invalidated, or confirmed beyond what we have stored
    │   └── PublicationChanged   a publication that we use was dropped, recreated, or publishes less than before
    ├── Unsendable               the source cannot send a transaction, which may be passed over; retried meanwhile
    └── DecodeError              bytes that are not the protocol we asked for
"""

from __future__ import annotations


class PipelineError(Exception):
    """Base of all; `str(error)` is what the user reads."""

    exit_code = 1


class ConfigError(PipelineError):
    """A setting or an argument is wrong."""

    exit_code = 2


class WrongArgument(ConfigError):
    """A reader of the log asked for something that cannot be."""


class EmbeddedPostgresError(PipelineError):
    """The embedded Postgres cannot be set up, started or stopped."""


class SchemaError(PipelineError):
    """The pipeline database is not at the revision of this code, or cannot be brought there."""


class AddressInUse(PipelineError):
    """The address to listen on is taken."""


class Unavailable(PipelineError):
    """A database does not answer or went away."""


class StorageError(PipelineError):
    """The pipeline database refused what the server needs to store."""


class Fenced(StorageError):
    """Another process has taken over; this one must write nothing more."""


class RetentionBusy(PipelineError):
    """Another session drops old events at the moment."""


class ConsumerError(PipelineError):
    """A reader of the log cannot go on as it is."""


class UnknownConsumer(ConsumerError):
    """There is no consumer of that name."""


class WrongKind(ConsumerError):
    """The consumer is of the other kind."""


class CursorHeld(ConsumerError):
    """Somebody else reads that cursor; the text names who, and since when."""


class ConsumerChanged(ConsumerError):
    """The consumer was reset or taken by another reader; who connects again goes on from its position."""


class CursorExpired(ConsumerError):
    """The log is no longer kept back to that position. `floor`: every event after this seq is kept; None: not known."""

    def __init__(self, sentence: str, floor: int | None = None) -> None:
        super().__init__(sentence)
        self.floor = floor


class ExportFailed(PipelineError):
    """An export did not run, or not to its end. What it had not finished is exported by the next one."""


class ExportBusy(ExportFailed):
    """Another exporter is at work on the same lake."""


class ExportStopped(ExportFailed):
    """The export was told to stop."""

    exit_code = 130


class ReplicationError(PipelineError):
    """The source cannot be replicated from as it is."""


class SourceUnfit(ReplicationError):
    """The source's settings, version or privileges do not allow logical replication."""


class PublicationMissing(ReplicationError):
    """The publication is absent and cannot be made."""


class SlotMissing(ReplicationError):
    """The slot that was named does not exist."""


class SlotExists(ReplicationError):
    """The slot to create is there already."""


class SlotInUse(ReplicationError):
    """Another program is reading the slot."""


class SlotUnusable(ReplicationError):
    """The slot exists but must not be used."""


class SourceChanged(ReplicationError):
    """Our positions cannot go on at this source: changes are missing, or its settings are not those we began with."""


class HistoryDiverged(SourceChanged):
    """What we staged is not in the history of this source, or not all of it."""


class SlotLost(SourceChanged):
    """The slot no longer holds all that we have not stored."""


class PublicationChanged(SourceChanged):
    """A publication that we use published less than we know of, at least for a while."""


class Unsendable(ReplicationError):
    """The source ended the stream at a change that it cannot send.

    `commit_lsn`, `committed_at` (µs since 2000) and `xid` are of the transaction, None when it had not begun for us;
    `changes` of it had come before.
    """

    def __init__(self, sentence: str, cause: str, sqlstate: str) -> None:
        super().__init__(sentence)
        self.cause = cause
        self.sqlstate = sqlstate
        self.commit_lsn: int | None = None
        self.committed_at = self.xid = self.changes = 0


class DecodeError(ReplicationError):
    """Bytes that are not the protocol that was asked for."""
