"""What stops an export. The text is one plain line: the thing, what is wrong, the remedy."""

from __future__ import annotations


class ExportError(Exception):
    """Base of all; `str(error)` is what the user reads. Nothing is lost: the range is exported by the next run."""


class TargetUnfit(ExportError):
    """The folder cannot be written to, or holds what is not ours."""


class ExportRunning(ExportError):
    """Another exporter writes to this lake."""


class Fenced(ExportError):
    """Another exporter has taken over; this one must publish nothing."""


class Inexact(ExportError):
    """What was written is not what the log holds."""


class Dropped(ExportError):
    """The log no longer holds all that the lake lacks."""
