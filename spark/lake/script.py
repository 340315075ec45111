"""What export.py and state.py share: arguments, JSON events on standard output, a plain reason when they fail."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from lake import parent
from lake.cluster import session
from lake.errors import ExportError


def parser(name: str, doc: str | None) -> argparse.ArgumentParser:
    """A parser with the arguments that every script takes."""
    made = argparse.ArgumentParser(prog=name, description=doc)
    made.add_argument("--export-dir", type=Path, required=True, help="the lake: a local or shared folder")
    made.add_argument("--events-table", default="public.sequin_events", help="schema.table (default: %(default)s)")
    made.add_argument("--master", help="Spark master; default: what spark-submit says")
    return made


@contextmanager
def spark(arguments: argparse.Namespace, name: str) -> Iterator[SparkSession]:
    """A Spark session; its application id is printed."""
    with session(arguments.master, name) as made:
        say("spark", application=made.sparkContext.applicationId)
        yield made


def run(act: Callable[[str, argparse.Namespace], None], arguments: argparse.Namespace) -> int:
    """Call `act` with the pipeline database's DSN; returns the exit status. If it fails, the last event says why."""
    parent.end_with()
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
    """Print an event as one line of JSON."""
    print(json.dumps({"event": event, **values}), flush=True)
