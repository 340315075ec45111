"""The version of this program."""

from __future__ import annotations

import importlib.metadata


def installed_version() -> str:
    """Return the version of the installed package, such as 0.1.0."""
    return importlib.metadata.version("wal-pipeline-server")
