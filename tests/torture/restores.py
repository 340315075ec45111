"""`python -m tests.torture.restores --minutes 20`: a pipeline database that goes back, again and again, under load.

Dumps, base backups and promotions in random order, at random moments: no reader lacks an event of the log or takes one
for another, nor does the lake, and the follower has what the source has.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import get_args

from pipeline.postgres.embedded import EmbeddedServer
from tests.fixtures.postgres import temporary_server
from tests.fixtures.restoring import Kind, restoring


def main(arguments: list[str]) -> int:
    """The exit status: 0, unless something was wrong, which is raised."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture.restores", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of what happens, not of its moments")
    options = parser.parse_args(arguments)
    chance = random.Random(options.seed)
    ends = time.monotonic() + 60 * options.minutes
    print(f"seed {options.seed}", flush=True)
    with (
        temporary_server(18) as source,
        temporary_server(18) as there,
        tempfile.TemporaryDirectory(prefix="wal-restores-") as folder,
        tempfile.TemporaryDirectory(prefix="wal-log-") as directory,
    ):
        try:
            with restoring(source, there, Path(directory) / "pg", Path(folder)) as rig:
                kinds: list[Kind] = ["dump"]
                while time.monotonic() < ends:
                    began = time.monotonic()
                    rig.lose(kinds[-1])
                    print(f"{kinds[-1]}: settled after {time.monotonic() - began:.0f} s; {rig.report()}", flush=True)
                    kinds.append(chance.choice(get_args(Kind)))
                rig.end()
                print(rig.report())
        finally:
            for found in Path(directory).glob("**/.s.PGSQL.*[0-9]"):
                EmbeddedServer(found.parent, port=int(found.suffix[1:])).stop("immediate")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
