"""Logging: one line per record. `action` is a stable name to search for and alert on."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

from pipeline import printable

_PLAIN = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def setup(level: str, style: str, role: str) -> None:
    """Send every record to standard error: as text, or as one JSON object per line (`auto`: text on a terminal)."""
    handler = logging.StreamHandler(sys.stderr)
    text = style == "text" or (style == "auto" and sys.stderr.isatty())
    handler.setFormatter(_Text(role) if text else _Json(role))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("apscheduler.executors").setLevel("CRITICAL")  # the schedule role logs failures itself
    for chatty in ("apscheduler", "uvicorn", "alembic"):
        logging.getLogger(chatty).setLevel("WARNING")


def _extras(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _PLAIN}


class _Text(logging.Formatter):
    def __init__(self, role: str) -> None:
        super().__init__()
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        extras = _extras(record)
        extras.pop("action", None)
        said = record.getMessage() + "".join(f" {key}={value}" for key, value in extras.items())
        where = f"{clock}.{int(record.msecs):03d} {record.levelname.lower():7} {self._role:11}"
        line = f"{where} {printable.escaped(said)}"
        return line + ("\n" + printable.below(self.formatException(record.exc_info)) if record.exc_info else "")


class _Json(logging.Formatter):
    def __init__(self, role: str) -> None:
        super().__init__()
        self._role = role

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "role": self._role,
            "message": record.getMessage(),
            **_extras(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)
