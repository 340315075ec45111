"""Starts the program. `pipeline health`, which runs every few seconds, starts without most imports."""

from __future__ import annotations

import sys


def main() -> int:
    """Run a command; see `pipeline/cli/main.py`."""
    try:
        if sys.argv[1:2] == ["health"]:
            from pipeline.cli import health

            if (status := health.run_without_parser(sys.argv[2:])) is not None:
                return status
        from pipeline.cli import main

        return main.main()
    except KeyboardInterrupt:  # while modules are imported
        return 130
