"""`python -m tests.torture.followers`."""

from __future__ import annotations

import sys

from tests.torture.followers.trials import main

if __name__ == "__main__":
    sys.exit(main())
