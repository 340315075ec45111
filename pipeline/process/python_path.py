"""The environment of a Python program that this process starts, which imports nothing from its current folder."""

from __future__ import annotations

import os
from pathlib import Path


def environment(*folders: Path) -> dict[str, str]:
    """Return our environment for a program that imports from these folders first.

    Python looks for modules in the current folder and the script's own. PYTHONSAFEPATH ends that for the program and
    for all that it starts, as Spark starts workers. An empty part of the user's PYTHONPATH means the current folder.
    """
    paths = [*map(str, folders), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(paths)}
