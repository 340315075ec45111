"""Writes log records to standard error, one line each. `action` is a stable name to search for and to alert on."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from contextlib import nullcontext
from typing import Any

from pipeline import printable

_PLAIN = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def setup(level: str, style: str, role: str) -> None:
    """Send every record to standard error: as text, or as one JSON object per line (`auto`: text on a terminal)."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Text(role) if chosen(style) == "text" else _Json(role))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("apscheduler.executors").setLevel("CRITICAL")  # the schedule role logs failures itself
    logging.getLogger("apscheduler.scheduler").setLevel("ERROR")  # its warning: a job still runs at its next time
    for chatty in ("apscheduler", "uvicorn", "alembic"):
        logging.getLogger(chatty).setLevel("WARNING")


def chosen(style: str) -> str:
    """Return the format `text` or `json`. `auto`: text on a terminal, else json.

    The parent process decides for its children, since they always write to a pipe.
    """
    return style if style != "auto" else "text" if sys.stderr.isatty() else "json"


def catch() -> None:
    """Log Python's warnings, and the errors that end threads."""
    logging.captureWarnings(True)
    threading.excepthook = _report_thread


def relay(line: str) -> None:
    """Pass on a line that another process has written to its standard error: a log record, or a message of a library.

    In a JSON log a message of a library becomes a record, whatever the log level is; in a text log it stays a line.
    """
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, _Json) and not _is_record(line):
            values = {"name": __name__, "levelno": logging.WARNING, "levelname": "WARNING", "msg": line}
            handler.handle(logging.makeLogRecord({**values, "action": "serve.stderr"}))
        elif isinstance(handler, logging.StreamHandler):
            with handler.lock or nullcontext():
                handler.stream.write(printable.escaped(line) + "\n")
                handler.flush()


def _is_record(line: str) -> bool:
    """True if the line is a record in the JSON format of this module."""
    try:
        found = json.loads(line)
    except ValueError:
        return False
    return isinstance(found, dict) and {"time", "level", "role", "message"} <= found.keys()


def _report_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
        error = args.exc_type, args.exc_value, args.exc_traceback
        action = {"action": "thread.failed"}
        logging.getLogger(__name__).error("unexpected error in a thread", exc_info=error, extra=action)


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
        message = record.getMessage() + "".join(f" {key}={value}" for key, value in extras.items())
        head = f"{clock}.{int(record.msecs):03d} {record.levelname.lower():7} {self._role:11}"
        line = f"{head} {printable.escaped(message)}"
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
