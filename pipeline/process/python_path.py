"""Build the environment of a Python program that imports nothing from its current folder."""

from __future__ import annotations

import os
from pathlib import Path


def environment(*folders: Path) -> dict[str, str]:
    """Return this process's environment for a program that imports from these folders first.

    Python looks for modules in the current folder and the script's own. PYTHONSAFEPATH prevents that for the program
    and for every process that it starts, such as Spark's workers. An empty part of the user's PYTHONPATH means the
    current folder.
    """
    paths = [*map(str, folders), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(paths)}
