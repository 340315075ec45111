"""Reads, writes and removes whole objects of a store like S3. It lists no objects, and renames none.

Each host finds credentials where the AWS SDK looks for them: AWS_ACCESS_KEY_ID and similar variables, the user's files,
the machine's role.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from lake.errors import UnfitTargetError
from lake.storage.where import ObjectPath

AT_ONCE = 16
"""The most parallel requests of the driver."""
_ATTEMPTS = 10
"""Attempts of each request: the second one after 50 ms, each later one after twice the time, 25 s in all."""
_CONNECT_SECONDS, _SILENT_SECONDS = 10.0, 60.0
_COPY_BYTES = 8 * 1024 * 1024
REMEDY = "check the bucket, AWS_ENDPOINT_URL, AWS_REGION and the credentials of the AWS SDK, or try again"
_REASONS = (
    ("NO_SUCH_BUCKET", "there is no such bucket; make it, or name another"),
    ("ACCESS_DENIED", "access is denied; allow s3:GetObject, s3:PutObject and s3:DeleteObject there"),
    ("INVALID_ACCESS_KEY_ID", "the store does not know that access key; correct the credentials"),
    ("SIGNATURE_DOES_NOT_MATCH", "the secret key does not fit the access key; correct the credentials"),
    ("MISSING_AUTHENTICATION_TOKEN", "there are no credentials; give them as the AWS SDK takes them"),
    ("PermanentRedirect", "the bucket is in another region; set AWS_REGION"),
    ("NETWORK_CONNECTION", "the store does not answer; correct AWS_ENDPOINT_URL, or start it"),
    ("SLOW_DOWN", "the store asks to slow down; nothing is lost, the next run continues"),
    ("SERVICE_UNAVAILABLE", "the store is not available; nothing is lost, the next run continues"),
)


def file_system(at: ObjectPath) -> fs.FileSystem:
    """Return the store as a file system of pyarrow, with paths of the form bucket/key."""
    unknown = at.endpoint is None and at.region is None
    return _file_system(at.endpoint, at.region, at.bucket if unknown else "", os.getpid())


@lru_cache(maxsize=8)
def _file_system(url: str | None, region: str | None, bucket: str, _process: int) -> fs.FileSystem:
    """Make a file system for each process: a fork cannot use that of its parent."""
    if bucket:
        try:
            region = fs.resolve_s3_region(bucket)
        except OSError:
            region = None  # then the SDK reads the user's files
    return fs.S3FileSystem(
        endpoint_override=url,
        region=region,
        connect_timeout=_CONNECT_SECONDS,
        request_timeout=_SILENT_SECONDS,
        retry_strategy=fs.AwsDefaultS3RetryStrategy(max_attempts=_ATTEMPTS),
        allow_delayed_open=True,  # small objects take one request
    )


def get(at: ObjectPath) -> bytes | None:
    """Return an object's content; None if there is no object. Raises UnfitTargetError."""
    with unfit_store(at):
        try:
            with file_system(at).open_input_file(at.in_store) as stream:
                content: bytes = stream.read()
                return content
        except FileNotFoundError:
            return None


def has(at: ObjectPath) -> bool:
    """Return True if there is an object of that name, with one request. Raises UnfitTargetError."""
    with unfit_store(at):
        try:
            file_system(at).open_input_file(at.in_store).close()
        except FileNotFoundError:
            return False
        return True


def missing(objects: Iterable[ObjectPath]) -> list[ObjectPath]:
    """Return the objects that do not exist, with a request for each, in parallel. Raises UnfitTargetError."""
    found: list[ObjectPath] = []
    _side_by_side(lambda at: None if has(at) else found.append(at), objects)
    return found


def put(at: ObjectPath, content: bytes) -> None:
    """Write an object as a whole: readers see the old content or the new one. Raises UnfitTargetError."""
    with unfit_store(at), file_system(at).open_output_stream(at.in_store) as stream:
        stream.write(content)


def upload(local: Path, at: ObjectPath) -> None:
    """Write a file's content as an object. After an OSError, there may be an object of that name or none."""
    with local.open("rb") as source, file_system(at).open_output_stream(at.in_store) as stream:
        while part := source.read(_COPY_BYTES):
            stream.write(part)


def download(at: ObjectPath, local: Path) -> None:
    """Write an object's content as a file. Raises OSError."""
    with local.open("wb") as target, file_system(at).open_input_file(at.in_store) as stream:
        while part := stream.read(_COPY_BYTES):
            target.write(part)


def put_all(objects: Mapping[ObjectPath, bytes]) -> None:
    """Write several objects, in parallel. Raises UnfitTargetError."""
    _side_by_side(lambda at: put(at, objects[at]), objects)


def remove_all(objects: Iterable[ObjectPath]) -> None:
    """Remove objects, if they exist. Raises UnfitTargetError."""
    _side_by_side(_remove, objects)


def _remove(at: ObjectPath) -> None:
    with unfit_store(at):
        try:
            file_system(at).delete_file(at.in_store)
        except FileNotFoundError:
            return


def _side_by_side(act: Callable[[ObjectPath], None], objects: Iterable[ObjectPath]) -> None:
    todo = list(objects)
    if len(todo) < 2:
        for each in todo:
            act(each)
        return
    with ThreadPoolExecutor(min(AT_ONCE, len(todo)), "objects") as threads:
        for done in [threads.submit(act, each) for each in todo]:
            done.result()


@contextmanager
def unfit_store(at: ObjectPath) -> Iterator[None]:
    """Turn errors of a store into UnfitTargetError: one line with the object, the reason and the remedy."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise UnfitTargetError(f"{at}: {reason(error)}") from error


def reason(error: BaseException) -> str:
    """Return the reason of a store's error, and what to do."""
    text = " ".join(str(error).split())
    known = next((explanation for words, explanation in _REASONS if words in text), None)
    return known or f"{text.partition(' (Request ID')[0]}; {REMEDY}"
