"""`python -m tests.torture.consumers`."""

from __future__ import annotations

import sys

from tests.torture.consumers.trials import main

if __name__ == "__main__":
    sys.exit(main())
