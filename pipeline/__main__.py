"""`python -m pipeline` is the `pipeline` command."""

from __future__ import annotations

import sys

from pipeline.cli.entry import main

if __name__ == "__main__":
    sys.exit(main())
