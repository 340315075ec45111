"""Checks whether a bucket can be a lake, or is one, in a process with the code and credentials of exports."""

from __future__ import annotations

import json
import subprocess
import sys

from pipeline.config.bucket import LakeBucket
from pipeline.exports import job

_SECONDS = 60.0
"""Seconds for a check, which tries a silent store several times."""
_LOOK_SECONDS = 5.0
"""Seconds for the check of `pipeline status`."""


def why_unfit(bucket: LakeBucket) -> str | None:
    """Return why the bucket cannot be a lake, with the remedy; None if it can. Writes, reads and removes an object."""
    return _asked(bucket, _SECONDS)


def why_lost(bucket: LakeBucket) -> str | None:
    """Return why the exported lake is missing, with the remedy; None if it exists. One request."""
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
        said = done.stderr.strip().splitlines() or ["the check printed nothing"]
        return f"{bucket}: its check ended with status {done.returncode}: {said[-1][:300]}"
