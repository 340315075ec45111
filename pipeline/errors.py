"""Every error the server raises on purpose. The text is one plain line: the thing, what is wrong, the remedy.

An error without an `exit_code` has the exit code of its base class. `pipeline/server/roles.py:RETRIED` lists the errors
after which a role of a running server starts again.
"""

from __future__ import annotations


class PipelineError(Exception):
    """Base of all errors; `str(error)` is what the user reads."""

    exit_code = 1


class ConfigError(PipelineError):
    """A setting or an argument is wrong."""

    exit_code = 2


class WrongArgumentError(ConfigError):
    """A client of the log gave an argument that is not allowed."""


class ConditionRefusedError(ConfigError):
    """A condition on rows has a part that could do more than select rows; no part of the condition was run."""


class TableRefusedError(ConfigError):
    """A table that a user named does not exist, is not captured, or cannot be read."""


class FollowerRefusedError(ConfigError):
    """A database, its name or its tables do not fit a follower; nothing was changed."""


class EmbeddedPostgresError(PipelineError):
    """The embedded Postgres cannot be set up, started or stopped."""


class SchemaError(PipelineError):
    """The pipeline database is not at this version's revision, or cannot be migrated to it."""


class NotReadyError(PipelineError):
    """`pipeline check` reports an error that needs a user's action, and that PIPELINE_ACCEPT does not name."""


class AddressInUseError(PipelineError):
    """The address to listen on is already in use."""


class DatabaseUnavailableError(PipelineError):
    """A database does not answer, or the connection is lost."""


class StatementRefusedError(DatabaseUnavailableError):
    """A database answers, but refuses a statement of the server; the text has the database's words and the SQLSTATE.

    `database`: which database, as the text names it: "source", "pipeline database" or "follower"; "" if unknown.
    `tables`: oids of tables of a follower; the statement was for one of these tables.
    """

    def __init__(self, sentence: str, database: str = "", tables: frozenset[int] = frozenset()) -> None:
        super().__init__(sentence)
        self.database = database
        self.tables = tables


class DatabaseSilentError(DatabaseUnavailableError):
    """A database is frozen, or its network is cut off without an error."""


class ReadAgainError(DatabaseUnavailableError):
    """Changes that were read, but not stored, must be read again, because another path must write them."""


class StorageError(PipelineError):
    """The pipeline database rejected what the server needs to store."""


class FencedError(StorageError):
    """Another process has taken over; this process must stop writing."""


class RetentionBusyError(PipelineError):
    """Another session is dropping old events."""


class ConsumerError(PipelineError):
    """A reader of the log cannot continue from its position."""


class UnknownConsumerError(ConsumerError):
    """No consumer has this name."""


class WrongConsumerKindError(ConsumerError):
    """The consumer has another kind than the client expects."""


class CursorHeldError(ConsumerError):
    """Another client reads the cursor; the text names that client, and since when it reads."""


class ConsumerChangedError(ConsumerError):
    """The consumer was reset or taken by another client; a client that reconnects continues from its position."""


class CursorExpiredError(ConsumerError):
    """Retention has dropped the next events of a reader. `floor`: every event after this seq is kept; None: unknown."""

    def __init__(self, sentence: str, floor: int | None = None) -> None:
        super().__init__(sentence)
        self.floor = floor


class FollowerError(PipelineError):
    """A follower cannot begin, change or continue; the text says why."""


class UnknownFollowerError(FollowerError):
    """No follower has this name."""


class ApplierOvertakenError(FollowerError):
    """Another applier has moved the follower's position; the writes of this applier are rolled back."""


class FollowedTablesChangedError(ApplierOvertakenError):
    """The list of tables that follow the log has changed, since a table must be or was copied; read the list again."""


class FollowerReleasedError(FollowerError):
    """A follower was released: the server applies no more changes to it."""


class TableLockedError(FollowerError):
    """Another session uses a table of a follower, so that the table cannot be truncated or changed.

    `pid`: the process id of that session, if known.
    """

    def __init__(self, sentence: str, pid: int | None) -> None:
        super().__init__(sentence)
        self.pid = pid


class RowDiffersError(FollowerError):
    """A follower lacks a row that the event `seq` changes, or already has a row that this event adds."""

    def __init__(self, sentence: str, table: str, seq: int) -> None:
        super().__init__(sentence)
        self.table = table
        self.seq = seq


class SchemaChangeError(FollowerError):
    """A follower cannot repeat what DDL has changed in a table at the source. `remedy`: what to do at the follower."""

    def __init__(self, sentence: str, remedy: str) -> None:
        super().__init__(sentence)
        self.remedy = remedy


class NotFollowableError(FollowerError):
    """A follower cannot apply the event `seq`, because the log or the table's columns do not allow it.

    `why`: `skipped` or `parked` (the change), `changed` (the columns), `unknown` (the columns at the time of the copy),
    `incomplete` (a new row lacks a value), `partition` (a partition that the follower lacks is truncated), or `gap` (an
    epoch begins with this event, after changes that are not in the log).
    `table`: empty if the error concerns all tables. `oid`: the table's at the source. `remedy`: None if the tables must
    be copied again.
    """

    def __init__(self, sentence: str, table: str, seq: int, why: str, remedy: str | None = None, oid: int = 0) -> None:
        super().__init__(sentence)
        self.table = table
        self.seq = seq
        self.why = why
        self.oid = oid
        self.remedy = remedy


class BackfillError(PipelineError):
    """A backfill cannot begin or change; the text says in which state the backfill is."""


class UnknownBackfillError(BackfillError):
    """No backfill has this id."""


class NotComparableError(PipelineError):
    """The log's rows of a table cannot be compared with the source; the text says why."""


class ExportFailedError(PipelineError):
    """An export did not run, or did not finish. The next export continues where this export ended."""


class ExportBusyError(ExportFailedError):
    """Another exporter is running for the same lake."""


class ExportStoppedError(ExportFailedError):
    """A signal or a user stopped the export."""

    exit_code = 130


class ReplicationError(PipelineError):
    """Replication from the source is not possible in its present state."""


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
    """The stored positions are not valid at this source: changes are missing, or the source's settings have changed."""


class HistoryDivergedError(SourceChangedError):
    """The history of this source lacks some or all of the changes that were staged."""


class SlotTakenError(SourceChangedError):
    """The slot carries the mark of another pipeline database."""


class SlotLostError(SourceChangedError):
    """The slot no longer holds all changes that are not stored yet."""


class PublicationChangedError(SourceChangedError):
    """A publication of the server did not publish some tables or changes for some time, or still does not."""


class SessionError(ReplicationError):
    """A client's session at the source cannot be streamed; the text is for the client."""


class UnknownSessionError(SessionError):
    """No session with this name was created here."""


class SessionHeldError(SessionError):
    """Another client streams the session; the text names that client, and since when."""


class SessionRefusedError(SessionError):
    """No session can be created now; the text is for the log."""


class SessionsFullError(SessionRefusedError):
    """PIPELINE_SESSIONS_MAX sessions exist. The text is for the client: it names them, and when each of them ends."""


class SessionGoneError(SessionError):
    """The session has ended, or its slot lacks changes that are not acknowledged; the text says why."""


class UndecodableChangeError(ReplicationError):
    """The source ended the stream at a change that it cannot send.

    `commit_lsn`, `committed_at` (µs since 2000) and `xid` are the transaction's; `commit_lsn` is None if the begin of
    the transaction was not received. `changes`: how many changes of the transaction were received.
    """

    def __init__(self, sentence: str, cause: str, sqlstate: str) -> None:
        super().__init__(sentence)
        self.cause = cause
        self.sqlstate = sqlstate
        self.commit_lsn: int | None = None
        self.committed_at = self.xid = self.changes = 0


class DecodeError(ReplicationError):
    """The source sent bytes that do not follow the requested protocol."""


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
