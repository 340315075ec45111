"""`python -m tests.torture.partitions`."""

from __future__ import annotations

import sys

from tests.torture.partitions.trials import main

if __name__ == "__main__":
    sys.exit(main())
