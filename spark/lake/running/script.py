"""Shared parts of the scripts: arguments, JSON events on standard output, a plain reason for a failure."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession

from lake.errors import ExportError
from lake.running import parent
from lake.running.cluster import session
from pyspark_sequin_events.dsn import VARIABLE, password, without_password


def parser(name: str, doc: str | None) -> argparse.ArgumentParser:
    """Return a parser with the arguments that every script takes."""
    made = argparse.ArgumentParser(prog=name, description=doc)
    made.add_argument("--export-dir", required=True, help="the lake: a local or shared folder, or s3://bucket/prefix")
    made.add_argument("--events-table", default="public.sequin_events", help="schema.table (default: %(default)s)")
    made.add_argument("--master", help="Spark master; default: that of spark-submit")
    return made


@contextmanager
def spark(arguments: argparse.Namespace, name: str) -> Iterator[SparkSession]:
    """Start a Spark session, and print its application id."""
    secret = password(os.environ.get(VARIABLE, "")) or os.environ.get("PGPASSWORD")
    with session(
        arguments.master, name, password=secret, report_wait=lambda reason: print_event("cores", reason=reason)
    ) as made:
        print_event("spark", application=made.sparkContext.applicationId)
        yield made


def run(act: Callable[[str, argparse.Namespace], None], arguments: argparse.Namespace) -> int:
    """Call `act` with the pipeline database's DSN, and return the exit status. If it fails, the last event says why.

    The DSN has no password, since tasks carry it: `catalog.connect` takes the password from this process's environment.
    """
    parent.end_with_parent()
    dsn = without_password(os.environ.get(VARIABLE, ""))
    try:
        if not dsn:
            raise ExportError(f"{VARIABLE} is not set; it names the pipeline database")
        act(dsn, arguments)
    except ExportError as error:
        print_event("failed", reason=str(error))
        return 1
    return 0


def print_event(event: str, **values: Any) -> None:
    """Print an event as one line of JSON."""
    print(json.dumps({"event": event, **values}), flush=True)
