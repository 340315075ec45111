"""Raises the limit of files that this process may open: each connection of a client needs one."""

from __future__ import annotations

import resource

OTHER_FILES = 100
"""The most files that are open in addition to clients' connections: logs, sockets of databases, modules."""
_MOST_FILES = 65_536


def raise_limit(most: int) -> int:
    """Raise this process's limit of open files as far as allowed; return how many connections fit, at most `most`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    return max(1, min(most, files - OTHER_FILES))
