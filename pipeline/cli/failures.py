"""How a command that fails says so: in one plain line, or in a line of the server's log where that is JSON."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline import logs
from pipeline.cli import flags
from pipeline.config import file as config_file
from pipeline.config import settings
from pipeline.errors import ConfigError
from pipeline.printable import say

logger = logging.getLogger(__name__)

_SETTING = "log_format"


def report(text: str, before: Sequence[str], command: Sequence[str], notes: Sequence[str] = ()) -> None:
    """Say why a command failed. `before` and `command`: its arguments as `flags.divided` gives them.

    `notes`: lines that follow.
    """
    if _is_server(command) and _format(before) == "json":
        logs.setup("error", "json", "serve")
        logger.error("%s", text, extra={"action": "serve.failed"})
    else:
        say(f"pipeline: {text}", *notes, file=sys.stderr)


def logged(before: Sequence[str], command: Sequence[str]) -> bool:
    """Log the unexpected error that is being handled, if a program reads the log; False if a person does."""
    if not _is_server(command) or _format(before) != "json":
        return False
    logger.exception("unexpected error", extra={"action": "serve.failed"})
    return True


def _is_server(command: Sequence[str]) -> bool:
    """Only its errors are read by programs; other commands are for people."""
    return next((each for each in command if not each.startswith("-")), None) == "serve"


def _format(before: Sequence[str]) -> str | None:
    """The log's format as it was asked for; settings that are wrong elsewhere do not matter.

    Not what `auto` makes of it: without a word from the user, an error is for the one who has just started the server.
    """
    given = flags.value(before, flags.of(_SETTING)) or os.environ.get(settings.variable(_SETTING))
    if given is not None:
        return given
    file = flags.value(before, "--config")
    try:
        found = config_file.read(Path(file) if file else None, list(settings.Config.model_fields)).get(_SETTING)
    except ConfigError:
        return None
    return found if isinstance(found, str) else None
