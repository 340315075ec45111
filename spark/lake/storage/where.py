"""Paths of a lake: on this host, or of an object in a bucket. Both join with `/`, which reads and writes nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from lake.errors import UnfitTargetError

SCHEME = "s3"
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]+):/.*", re.DOTALL)
_BUCKET = re.compile(r"s3://([a-z0-9][a-z0-9.\-]{1,61}[a-z0-9])(?:/(.*))?", re.DOTALL)


@dataclass(frozen=True)
class ObjectPath:
    """An object of a bucket, or a prefix of objects' names; `key` neither begins nor ends with a slash.

    `endpoint`: the store of the bucket, None: Amazon's; `region`: that of the bucket, None: not known. Tasks get both
    with the path, so that hosts need no such settings.
    """

    bucket: str
    key: str = ""
    endpoint: str | None = None
    region: str | None = None

    def __truediv__(self, name: str | PurePosixPath) -> ObjectPath:
        return replace(self, key=f"{self.key}/{name}" if self.key else str(name))

    def __str__(self) -> str:
        return f"{SCHEME}://{self.in_store}".rstrip("/")

    @property
    def in_store(self) -> str:
        """The path in a file system of pyarrow."""
        return f"{self.bucket}/{self.key}"

    @property
    def name(self) -> str:
        """The text after the last slash."""
        return self.key.rpartition("/")[2]

    def relative_to(self, other: ObjectPath) -> str:
        """Return the path relative to `other`, which must contain it."""
        if self.bucket != other.bucket or not self.key.startswith(f"{other.key}/" if other.key else ""):
            raise ValueError(f"{self} is not in {other}")
        return self.key[len(other.key) :].removeprefix("/")

    def absolute(self) -> ObjectPath:
        """Return the path itself, as `Path.absolute` does for an absolute path."""
        return self


LakePath = Path | ObjectPath


def parse(text: str | Path, environment: Mapping[str, str] = os.environ) -> LakePath:
    """Return the path of a folder, or of `s3://bucket/prefix` in the store that the environment names.

    Raises UnfitTargetError for another URL.
    """
    if isinstance(text, Path) or not _URL.fullmatch(text):
        return Path(text)
    if (found := _BUCKET.fullmatch(text)) is None:
        raise UnfitTargetError(f"{text} is neither a folder nor s3://bucket/prefix; name one of those")
    key = (found[2] or "").strip("/")
    if re.search(r"//|(^|/)\.\.?(/|$)|[#?\s\x00-\x1f]", key):
        raise UnfitTargetError(f"{text} has a part that is empty or a dot, or one of # and ?; name another prefix")
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL") or None
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or None
    return ObjectPath(found[1], key, endpoint, region)


def relative(at: str, folder: LakePath) -> str:
    """Return the path of a file relative to `folder`."""
    if isinstance(folder, Path):
        return str(Path(at).relative_to(folder))
    found = parse(at)
    assert isinstance(found, ObjectPath)  # noqa: S101  what is in a bucket
    return found.relative_to(folder)
