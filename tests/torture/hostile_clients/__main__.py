"""`python -m tests.torture.hostile_clients [SECONDS]`."""

from __future__ import annotations

import sys

from tests.torture.hostile_clients.trial import main

if __name__ == "__main__":
    sys.exit(main())
