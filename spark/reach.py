"""`pipeline check` starts this: whether the bucket of a lake is reached, and may be written to.

What it finds is printed as JSON, one event a line: `ok`, or `unfit` with the reason.
"""

from __future__ import annotations

import sys

from lake import script
from lake.errors import ExportError
from lake.identity import folder_at


def main(argv: list[str]) -> int:
    """Write an object, read it, remove it, and look whose lake is there. Needs no Spark and no database."""
    try:
        folder = folder_at(argv[0])
        folder.require_writable()
        folder.identity()
    except ExportError as error:
        script.say("unfit", reason=str(error))
        return 1
    script.say("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
