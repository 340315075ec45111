"""Errors that end an export. The text is one plain line: the thing, what is wrong, the remedy."""

from __future__ import annotations


class ExportError(Exception):
    """Base of all; `str(error)` is what the user reads. Nothing is lost: the next run exports the range."""


class UnfitTargetError(ExportError):
    """The folder cannot be written to, or holds files that are not ours."""


class ExportRunningError(ExportError):
    """Another exporter is writing to this lake."""


class ExporterFencedError(ExportError):
    """Another exporter has taken over; this one must publish nothing."""


class FileMismatchError(ExportError):
    """The files written do not hold what the log holds."""


class UnclearHistoryError(ExportError):
    """The history does not say which columns of a table are which, so its state cannot be made."""


class DroppedEventsError(ExportError):
    """The log no longer holds all events that the lake lacks."""


def missing_jump_error(directory: object) -> UnfitTargetError:
    """The ledger may have gone back with the log, and nothing says yet what readers may have seen."""
    return UnfitTargetError(
        f"{directory} is not exported to yet: the pipeline database was restored or promoted, and its log has not "
        "jumped since then; start the server, the export continues after the next event"
    )


def lost_lake_error(directory: str) -> UnfitTargetError:
    """The lake that was exported to it is not there."""
    return UnfitTargetError(
        f"{directory} has no manifest, but events were exported to it; restore it, or name another PIPELINE_EXPORT_DIR "
        "to export everything again"
    )
