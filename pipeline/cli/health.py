"""`pipeline health`: ask the server of these settings if it is well. It runs often, so it imports little.

If the server runs only a role without HTTP, its sign of life answers (`pipeline/process/heartbeat.py`).
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
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  where a server listens, not where we do


def fast(arguments: Sequence[str]) -> int | None:
    """Return the exit status of `pipeline health`; None if its arguments need the whole command line."""
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
    """Ask, print the answer in a line, and return 0 when the server is well, 1 when it is not, or does not answer.

    `settings`: those of DEFAULTS. `only`: the role of `serve --only`. `ready`: ask also if it does its work.
    """
    if only not in (None, "api"):
        if ready:
            raise PipelineError(f"a server of {only} alone says only whether it is alive; leave out --ready")
        return _alive(Path(settings["data_dir"]), str(only))
    path = "/healthz" if not ready else "/readyz?role=api" if only else "/readyz"
    host = _EVERYWHERE.get(settings["http_host"], settings["http_host"])
    encrypted = bool(settings["http_certificate"])
    shown = f"{'https' if encrypted else 'http'}://{f'[{host}]' if ':' in host else host}:{settings['http_port']}"
    try:
        status, text = _get(host, int(settings["http_port"]), path, encrypted=encrypted)
    except (OSError, ValueError) as error:
        say(f"no server answers at {shown}: {error}", file=sys.stderr)
        return 1
    say(_said(status, text), file=sys.stdout if status == 200 else sys.stderr)
    return 0 if status == 200 else 1


def _get(host: str, port: int, path: str, *, encrypted: bool) -> tuple[int, str]:
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    connection = HTTPConnection(host, port, timeout=SECONDS)
    if encrypted:
        import ssl

        # It asks its own machine, mostly by an address that the certificate does not name, and tells no secret.
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


def _said(status: int, text: str) -> str:
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
        say(f"no server of {role} alone has left a sign of life in {path}", file=sys.stderr)
        return 1
    if age > heartbeat.STALE_SECONDS:
        say(f"the server of {role} has left no sign of life in {path} for {age:.0f} s", file=sys.stderr)
        return 1
    say("ok")
    return 0


def _settings() -> dict[str, str]:
    """Read the settings as `pipeline serve` does, without flags."""
    from_file = file.read(None, list(DEFAULTS))
    return {
        name: os.environ.get(f"PIPELINE_{name.upper()}") or str(from_file.get(name) or default)
        for name, default in DEFAULTS.items()
    }
