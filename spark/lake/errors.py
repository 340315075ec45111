"""Errors that end an export. The text is one plain line: the thing, what is wrong, the remedy."""

from __future__ import annotations


class ExportError(Exception):
    """Base of all; `str(error)` is what the user reads. Nothing is lost: the next run exports the range."""


class TargetUnfit(ExportError):
    """The folder cannot be written to, or holds files that are not ours."""


class ExportRunning(ExportError):
    """Another exporter is writing to this lake."""


class Fenced(ExportError):
    """Another exporter has taken over; this one must publish nothing."""


class Inexact(ExportError):
    """The files written do not hold what the log holds."""


class Unclear(ExportError):
    """The history does not say which columns of a table are which, so its state cannot be made."""


class Dropped(ExportError):
    """The log no longer holds all events that the lake lacks."""


def no_jump(directory: object) -> TargetUnfit:
    """The ledger may have gone back with the log, and nothing says yet what readers may have seen."""
    return TargetUnfit(
        f"{directory} is not exported to yet: the pipeline database was restored or promoted, and its log has not "
        "jumped since then; start the server, the export continues after the next event"
    )


def lost(directory: str) -> TargetUnfit:
    """The lake that was exported to it is not there."""
    return TargetUnfit(
        f"{directory} has no manifest, but events were exported to it; restore it, or name another PIPELINE_EXPORT_DIR "
        "to export everything again"
    )
