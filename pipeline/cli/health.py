"""`pipeline health`: check if the running server is alive. The command runs often, so it imports little.

A server that runs only a role without HTTP is checked by the file of its heartbeat (`pipeline/process/heartbeat.py`).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline.config import file
from pipeline.errors import PipelineError
from pipeline.printable import say

DEFAULTS = {"http_host": "127.0.0.1", "http_port": "12312", "http_certificate": "", "data_dir": ".pipeline"}
"""Defaults of the settings that this command needs, as `Config` has them."""
ROLES = ("snapshot", "replication", "shuffle", "schedule", "followers", "api", "grpc")
SECONDS = 8.0
"""Seconds that this command waits for the answer, which `/readyz` gives within 5 s whatever hangs."""
_LOCAL_ADDRESSES = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  where a server listens, not where we do


def run_without_parser(arguments: Sequence[str]) -> int | None:
    """Run `pipeline health` without the command-line parser, and return the exit status.

    None: the parser must read these arguments.
    """
    only, ready = None, False
    left = list(arguments)
    while left:
        argument = left.pop(0)
        if argument == "--ready":
            ready = True
        elif argument == "--only" and left and left[0] in ROLES:
            only = left.pop(0)
        elif argument.startswith("--only=") and argument.removeprefix("--only=") in ROLES:
            only = argument.removeprefix("--only=")
        else:
            return None
    try:
        return run(_settings(), only, ready=ready)
    except PipelineError as error:
        say(f"pipeline: {error}", file=sys.stderr)
        return error.exit_code


def run(settings: Mapping[str, Any], only: str | None, *, ready: bool) -> int:
    """Check the server and print the result in one line. Return 0 if the server is well, else 1.

    `settings`: the settings in DEFAULTS. `only`: the role that the server runs alone. `ready`: also check that the
    server replicates.
    """
    if only not in (None, "api"):
        if ready:
            raise PipelineError(f"a server with --only {only} reports only that it is alive; leave out --ready")
        return _alive(Path(settings["data_dir"]), str(only))
    path = "/healthz" if not ready else "/readyz?role=api" if only else "/readyz"
    host = _LOCAL_ADDRESSES.get(settings["http_host"], settings["http_host"])
    encrypted = bool(settings["http_certificate"])
    shown = f"{'https' if encrypted else 'http'}://{f'[{host}]' if ':' in host else host}:{settings['http_port']}"
    try:
        status, text = _get(host, int(settings["http_port"]), path, encrypted=encrypted)
    except (OSError, ValueError) as error:
        say(f"no server answers at {shown}: {error}", file=sys.stderr)
        return 1
    say(_summary(status, text), file=sys.stdout if status == 200 else sys.stderr)
    return 0 if status == 200 else 1


def _get(host: str, port: int, path: str, *, encrypted: bool) -> tuple[int, str]:
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    connection = HTTPConnection(host, port, timeout=SECONDS)
    if encrypted:
        import ssl

        # The server is on this machine, and its certificate rarely names this address; the request has no secret.
        context = ssl._create_unverified_context()  # noqa: S323
        connection = HTTPSConnection(host, port, timeout=SECONDS, context=context)
    try:
        connection.request("GET", path, headers={"Host": "localhost"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode("utf-8", "replace")
    except HTTPException as error:
        raise OSError(f"the answer is not HTTP: {error!r}") from error
    finally:
        connection.close()


def _summary(status: int, text: str) -> str:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text.strip() or f"HTTP {status}"
    reasons = found.get("reasons") if isinstance(found, dict) else None
    return "; ".join(map(str, reasons)) if reasons else "ready" if status == 200 else text.strip()


def _alive(data_dir: Path, role: str) -> int:
    from pipeline.process import heartbeat

    path = heartbeat.file(data_dir, role)
    age = heartbeat.age(path)
    if age is None:
        say(f"no server with --only {role} is running: the file {path} does not exist", file=sys.stderr)
        return 1
    if age > heartbeat.STALE_SECONDS:
        say(
            f"the server with --only {role} is dead or frozen: {path} was last updated {age:.0f} s ago", file=sys.stderr
        )
        return 1
    say("ok")
    return 0


def _settings() -> dict[str, str]:
    """Read the settings in DEFAULTS from the environment and pipeline.toml, as `pipeline serve` does."""
    from_file = file.read(None, list(DEFAULTS))
    return {
        name: os.environ.get(f"PIPELINE_{name.upper()}") or str(from_file.get(name) or default)
        for name, default in DEFAULTS.items()
    }
