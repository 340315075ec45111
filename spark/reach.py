"""Test the bucket of a lake.

`pipeline check` starts this script, to find out if exports can reach the bucket and write to it.

`pipeline status` starts the script with `--look`, to find out if the lake that was exported to the bucket exists. The
script prints its result as JSON, one event a line: `ok`, or `unfit` with the reason.
"""

from __future__ import annotations

import sys

from lake.errors import ExportError, lost_lake_error
from lake.running import script
from lake.storage import layout, object_store, where
from lake.storage.where import ObjectPath


def main(argv: list[str]) -> int:
    """Test the bucket, without Spark and without a database."""
    url, *options = argv
    try:
        if options:
            _check_manifest(url)
        else:
            _try_bucket(url)
    except ExportError as error:
        script.print_event("unfit", reason=str(error))
        return 1
    script.print_event("ok")
    return 0


def _check_manifest(url: str) -> None:
    """Require the manifest. A user waits for the answer, so this imports no module that takes long."""
    at = where.parse(url)
    if isinstance(at, ObjectPath) and not object_store.has(at / layout.MANIFEST):
        raise lost_lake_error(url)


def _try_bucket(url: str) -> None:
    """Write an object, read it, remove it, and read the identity of the lake in the bucket."""
    from lake.storage.identity import folder_at

    folder = folder_at(url)
    folder.require_writable()
    folder.identity()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
