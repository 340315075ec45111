"""Whether a bucket can be a lake: asked by the code that exports, with the same credentials, as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from pipeline.config.bucket import Bucket
from pipeline.exports import job

_SECONDS = 60.0
"""A store that does not answer is asked several times."""


def unfit(bucket: Bucket) -> str | None:
    """Why not, with the remedy; None if it can."""
    folder = str(job.scripts())
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PIPELINE_")},
        "PYTHONPATH": os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    command = [sys.executable, str(job.scripts() / "reach.py"), str(bucket)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"{bucket}: the store has not answered within {_SECONDS:g} s; correct AWS_ENDPOINT_URL, or start it"
    if done.returncode == 0:
        return None
    try:
        return str(json.loads(done.stdout.splitlines()[-1])["reason"])
    except (IndexError, ValueError, KeyError):
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        return f"{bucket}: looking at it ended with status {done.returncode}: {said[-1][:300]}"
