"""The address of a lake in a bucket: `s3://bucket/prefix`.

`spark/lake/storage/where.py` parses the same addresses, because Spark runs no code of the server. A test compares both.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_URL = re.compile(r"\s*([a-z][a-z0-9+.-]+):/", re.IGNORECASE)
_BUCKET = re.compile(r"s3://[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9](/.*)?")
_EXAMPLE = "s3://bucket/prefix"


@dataclass(frozen=True)
class LakeBucket:
    """The address of a lake in a bucket; `/` joins names to it, as to a path."""

    url: str

    def __str__(self) -> str:
        return self.url

    def __truediv__(self, name: str) -> LakeBucket:
        return LakeBucket(f"{self.url}/{name}")


LakeAt = Path | LakeBucket


def parse(value: Any) -> Any:
    """Return a LakeBucket for the URL of a bucket; return a path unchanged.

    Raises ValueError for any other URL, which would otherwise name a local folder.
    """
    if not isinstance(value, str) or (scheme := _URL.match(value)) is None:
        return value
    if scheme[1].lower() != "s3":
        raise ValueError(f"{scheme[1]}: is not supported: name a local folder, a mounted folder, or {_EXAMPLE}")
    url = value.strip().rstrip("/")
    if not _BUCKET.fullmatch(url):
        raise ValueError(f"expected {_EXAMPLE} with the name of a bucket as S3 allows it, not {value!r}")
    if re.search(r"//|/\.\.?(/|$)|[#?\s\x00-\x1f]", url.removeprefix("s3://")):
        raise ValueError(f"expected a prefix without empty parts, `.`, `..`, #, ? and blanks, not {value!r}")
    return LakeBucket(url)
