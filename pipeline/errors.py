"""Every error the server raises on purpose. The text is one plain line: the thing, what is wrong, the remedy.

An error that has no `exit_code` of its own has that of its base. Which are retried while the server runs is said where
roles are started again: `pipeline/server/roles.py:RETRIED`.
"""

from __future__ import annotations


class PipelineError(Exception):
    """Base of all errors; `str(error)` is what the user reads."""

    exit_code = 1


class ConfigError(PipelineError):
    """A setting or an argument is wrong."""

    exit_code = 2


class WrongArgumentError(ConfigError):
    """A reader of the log gave an argument that is not possible."""


class ConditionRefusedError(ConfigError):
    """A condition on rows has a part that could do more than choose among them; nothing of it was run."""


class TableRefusedError(ConfigError):
    """A table that was named is not there, is not captured, or cannot be read."""


class FollowerRefusedError(ConfigError):
    """A database, its name or its tables cannot be a follower as they are; nothing was changed."""


class EmbeddedPostgresError(PipelineError):
    """The embedded Postgres cannot be set up, started or stopped."""


class SchemaError(PipelineError):
    """The pipeline database is not at this version's revision, or cannot be migrated to it."""


class NotReadyError(PipelineError):
    """`pipeline check` finds what neither waiting nor a running server can cure, and what was not accepted."""


class AddressInUseError(PipelineError):
    """The address to listen on is already in use."""


class DatabaseUnavailableError(PipelineError):
    """A database does not answer, or the connection is lost."""


class StatementRefusedError(DatabaseUnavailableError):
    """A database answers, and refuses a statement of ours; the text has its words and the SQLSTATE.

    `place`: which database, as the text names it: "source", "pipeline database" or "follower"; "" if that is not known.
    `tables`: those of a follower, by oid, one of which the statement was for.
    """

    def __init__(self, sentence: str, place: str = "", tables: frozenset[int] = frozenset()) -> None:
        super().__init__(sentence)
        self.place = place
        self.tables = tables


class DatabaseSilentError(DatabaseUnavailableError):
    """A database is frozen, or cut off without a word."""


class ReadAgainError(DatabaseUnavailableError):
    """Changes that were read, and not stored, have to be written in another way: the source is asked for them again."""


class StorageError(PipelineError):
    """The pipeline database rejected what the server needs to store."""


class FencedError(StorageError):
    """Another process has taken over; this one must write nothing more."""


class RetentionBusyError(PipelineError):
    """Another session is dropping old events."""


class ConsumerError(PipelineError):
    """A reader of the log cannot continue as it is."""


class UnknownConsumerError(ConsumerError):
    """There is no consumer of that name."""


class WrongConsumerKindError(ConsumerError):
    """The consumer is of the other kind."""


class CursorHeldError(ConsumerError):
    """Another client reads that cursor; the text names it, and since when it reads."""


class ConsumerChangedError(ConsumerError):
    """The consumer was reset or taken by another client; a client that reconnects continues from its position."""


class CursorExpiredError(ConsumerError):
    """The log is no longer kept back to that position. `floor`: every event after this seq is kept; None: unknown."""

    def __init__(self, sentence: str, floor: int | None = None) -> None:
        super().__init__(sentence)
        self.floor = floor


class FollowerError(PipelineError):
    """A follower cannot begin, change or go on, as it is: the text says why."""


class UnknownFollowerError(FollowerError):
    """There is no follower of that name."""


class ApplierOvertakenError(FollowerError):
    """Another applier has moved the follower's position; what this one wrote is rolled back."""


class FollowedTablesChangedError(ApplierOvertakenError):
    """Which of a follower's tables follow the log has changed: one is to be copied, or was. Read them again."""


class FollowerReleasedError(FollowerError):
    """A follower was released: nothing more is applied to it."""


class TableLockedError(FollowerError):
    """Another session uses a table of a follower that is to be truncated or divided. `pid`: the session, if known."""

    def __init__(self, sentence: str, pid: int | None) -> None:
        super().__init__(sentence)
        self.pid = pid


class RowDiffersError(FollowerError):
    """A follower lacks a row that the log changes, or has one that the log adds: `seq` is the event's."""

    def __init__(self, sentence: str, table: str, seq: int) -> None:
        super().__init__(sentence)
        self.table = table
        self.seq = seq


class SchemaChangeError(FollowerError):
    """A follower cannot have what DDL has made of a table at the source; `remedy`: what to do there."""

    def __init__(self, sentence: str, remedy: str) -> None:
        super().__init__(sentence)
        self.remedy = remedy


class NotFollowableError(FollowerError):
    """The log does not say what a row is, or a table has another form from there on: `seq` is the event's.

    `why`: `skipped`, `parked`, `changed` (the form), `unknown` (the form with which it was copied), `incomplete` (a new
    row lacks a value), `partition` (one that the follower does not have is truncated), or `gap` (an epoch begins there
    after changes that are not in the log).
    `table` is empty where all are concerned; `oid` is the table's at the source. `remedy`: None where only copies help.
    """

    def __init__(self, sentence: str, table: str, seq: int, why: str, remedy: str | None = None, oid: int = 0) -> None:
        super().__init__(sentence)
        self.table = table
        self.seq = seq
        self.why = why
        self.oid = oid
        self.remedy = remedy


class BackfillError(PipelineError):
    """A backfill cannot begin, or cannot change, as it is: the text says in which state it is."""


class UnknownBackfillError(BackfillError):
    """There is no backfill with that id."""


class NotComparableError(PipelineError):
    """What the log says of a table cannot be compared with its source: the text says why."""


class ExportFailedError(PipelineError):
    """An export did not run, or not to its end. The next one exports what it had not finished."""


class ExportBusyError(ExportFailedError):
    """Another exporter is running for the same lake."""


class ExportStoppedError(ExportFailedError):
    """The export was asked to stop."""

    exit_code = 130


class ReplicationError(PipelineError):
    """The source cannot be replicated from as it is."""


class SourceUnfitError(ReplicationError):
    """The source's settings, version or privileges do not allow logical replication."""


class PublicationMissingError(ReplicationError):
    """The publication does not exist and cannot be created."""


class SlotMissingError(ReplicationError):
    """The named slot does not exist."""


class SlotExistsError(ReplicationError):
    """The slot to create already exists."""


class SlotInUseError(ReplicationError):
    """Another program is reading the slot."""


class SlotUnusableError(ReplicationError):
    """The slot exists but must not be used."""


class SourceChangedError(ReplicationError):
    """Our positions are not valid at this source: changes are missing, or its settings are not those we began with."""


class HistoryDivergedError(SourceChangedError):
    """What we staged is not, or not completely, in the history of this source."""


class SlotTakenError(SourceChangedError):
    """The slot carries the mark of another pipeline database."""


class SlotLostError(SourceChangedError):
    """The slot no longer holds all that we have not stored."""


class PublicationChangedError(SourceChangedError):
    """A publication that we use published less than we know of, at least for a while."""


class SessionError(ReplicationError):
    """A client's session at the source cannot be streamed; the text is for the client."""


class UnknownSessionError(SessionError):
    """No session of that name was made here."""


class SessionHeldError(SessionError):
    """Another client streams the session; the text names it, and since when."""


class SessionRefusedError(SessionError):
    """No session can be made now; the text is for the log."""


class SessionsFullError(SessionRefusedError):
    """No session makes room for another one yet; the text, for the client, names them and until when they are kept."""


class SessionGoneError(SessionError):
    """The session has ended, or its slot no longer holds all that is not acknowledged; the text says why."""


class UndecodableChangeError(ReplicationError):
    """The source ended the stream at a change that it cannot send.

    `commit_lsn`, `committed_at` (µs since 2000) and `xid` are of the transaction; `commit_lsn` is None when we had not
    received its begin. `changes`: how many of its changes we had received.
    """

    def __init__(self, sentence: str, cause: str, sqlstate: str) -> None:
        super().__init__(sentence)
        self.cause = cause
        self.sqlstate = sqlstate
        self.commit_lsn: int | None = None
        self.committed_at = self.xid = self.changes = 0


class DecodeError(ReplicationError):
    """Bytes that are not the protocol that we requested."""


Unavailable = DatabaseUnavailableError
"""The former name, for programs that import it."""
Refused = StatementRefusedError
"""The former name, for programs that import it."""
UnknownConsumer = UnknownConsumerError
"""The former name, for programs that import it."""
WrongKind = WrongConsumerKindError
"""The former name, for programs that import it."""
CursorExpired = CursorExpiredError
"""The former name, for programs that import it."""
