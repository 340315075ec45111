"""`pipeline check` starts this: whether the bucket of a lake is reached, and may be written to.

With `--look`, `pipeline status` does: whether the lake that was exported to it is there.
What it finds is printed as JSON, one event a line: `ok`, or `unfit` with the reason.
"""

from __future__ import annotations

import sys

from lake.errors import ExportError, lost_lake_error
from lake.running import script
from lake.storage import layout, object_store, where
from lake.storage.where import ObjectPath


def main(argv: list[str]) -> int:
    """Look at the bucket. Needs no Spark and no database."""
    url, *look = argv
    try:
        if look:
            _check_manifest(url)
        else:
            _try_bucket(url)
    except ExportError as error:
        script.print_event("unfit", reason=str(error))
        return 1
    script.print_event("ok")
    return 0


def _check_manifest(url: str) -> None:
    """Ask for the manifest. Somebody waits: what takes long to import is left out."""
    at = where.parse(url)
    if isinstance(at, ObjectPath) and not object_store.has(at / layout.MANIFEST):
        raise lost_lake_error(url)


def _try_bucket(url: str) -> None:
    """Write an object, read it, remove it, and look whose lake is there."""
    from lake.storage.identity import folder_at

    folder = folder_at(url)
    folder.require_writable()
    folder.identity()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
