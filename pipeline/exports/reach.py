"""Whether a bucket can be a lake, or is one: asked by the code that exports, with its credentials, as a process."""

from __future__ import annotations

import json
import subprocess
import sys

from pipeline.config.bucket import LakeBucket
from pipeline.exports import job

_SECONDS = 60.0
"""A store that does not answer is asked several times."""
_LOOK_SECONDS = 5.0
"""As long somebody waits who only wants to know how it is."""


def unfit(bucket: LakeBucket) -> str | None:
    """Why it cannot be one, with the remedy; None if it can. Writes an object, reads it and removes it."""
    return _asked(bucket, _SECONDS)


def lost(bucket: LakeBucket) -> str | None:
    """Why the lake that was exported to it is not there, with the remedy; None if it is. One request."""
    return _asked(bucket, _LOOK_SECONDS, "--look")


def _asked(bucket: LakeBucket, seconds: float, *arguments: str) -> str | None:
    command = [sys.executable, str(job.scripts() / "reach.py"), str(bucket), *arguments]
    try:
        done = subprocess.run(
            command, env=job.python_environment(), capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{bucket}: the store has not answered within {seconds:g} s; correct AWS_ENDPOINT_URL, or start it"
    if done.returncode == 0:
        return None
    try:
        return str(json.loads(done.stdout.splitlines()[-1])["reason"])
    except (IndexError, ValueError, KeyError):
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        return f"{bucket}: looking at it ended with status {done.returncode}: {said[-1][:300]}"
