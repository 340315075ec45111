"""`python -m tests.torture.walstream`."""

from __future__ import annotations

import sys

from tests.torture.walstream.trials import main

if __name__ == "__main__":
    sys.exit(main())
