"""What the scripts beside this package share: JSON events on standard output, a plain reason when they cannot."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from typing import Any

from lake.errors import ExportError


def run(act: Callable[[str, argparse.Namespace], None], arguments: argparse.Namespace) -> int:
    """`act` with the pipeline database's DSN; the exit status. Why it failed is the last event."""
    dsn = os.environ.get("PIPELINE_DATABASE_DSN", "")
    try:
        if not dsn:
            raise ExportError("PIPELINE_DATABASE_DSN is not set; it names the pipeline database")
        act(dsn, arguments)
    except ExportError as error:
        say("failed", reason=str(error))
        return 1
    return 0


def say(event: str, **values: Any) -> None:
    """One line of JSON."""
    print(json.dumps({"event": event, **values}), flush=True)
