"""Errors that end an export. Their text is one plain line: the thing, what is wrong, the remedy."""

from __future__ import annotations


class ExportError(Exception):
    """The base of all errors; the user reads `str(error)`. Nothing is lost: the next run exports the range."""


class UnfitTargetError(ExportError):
    """The export cannot write to the folder, or the folder holds files that are not ours."""


class ExportRunningError(ExportError):
    """Another exporter is writing to this lake."""


class ExporterFencedError(ExportError):
    """Another exporter has taken over; this one must publish nothing."""


class FileMismatchError(ExportError):
    """The content of files differs from what the log, the ledger or other files state."""


class UnclearHistoryError(ExportError):
    """The history does not tell which columns or rows of a table are the same, so no state of it can be made."""


class DroppedEventsError(ExportError):
    """The log no longer holds all events that the lake lacks."""


def missing_jump_error(directory: object) -> UnfitTargetError:
    """Return the error for a log that was restored and has not jumped: the ledger may have gone back with the log."""
    return UnfitTargetError(
        f"{directory} is not exported to yet: the pipeline database was restored or promoted, and its log has not "
        "jumped since then; start the server, the export continues after the next event"
    )


def lost_lake_error(directory: str) -> UnfitTargetError:
    """Return the error for a folder or bucket from which the exported lake has disappeared."""
    return UnfitTargetError(
        f"{directory} has no manifest, but events were exported to it; restore it, or name another PIPELINE_EXPORT_DIR "
        "to export everything again"
    )
