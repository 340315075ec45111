"""Paths in folders and in buckets."""

from __future__ import annotations

from pathlib import Path

import pytest

from lake import ledger
from lake.errors import UnfitTargetError
from lake.iceberg import names
from lake.storage.where import ObjectPath, parse, relative
from pipeline.config import bucket, values
from pipeline.exports import job


def test_a_path_and_a_url() -> None:
    at = parse("s3://lake/a/b/", {"AWS_ENDPOINT_URL": "http://here", "AWS_DEFAULT_REGION": "eu-west-1"})
    assert at == ObjectPath("lake", "a/b", "http://here", "eu-west-1")
    assert str(at / "c/d.parquet") == "s3://lake/a/b/c/d.parquet"
    assert str(parse("s3://lake", {})) == "s3://lake"
    assert parse("/a/b") == Path("/a/b")
    assert relative("s3://lake/a/b/c/d", ObjectPath("lake", "a/b")) == "c/d"
    assert relative("/a/b/c", Path("/a")) == "b/c"
    with pytest.raises(ValueError, match="is not in"):
        relative("s3://lake/ab/c", ObjectPath("lake", "a"))


@pytest.mark.parametrize(
    "url", ["gs://lake/a", "s3:/lake", "s3://L/a", "s3://lake/a//b", "s3://lake/./a", "s3://lake/a?b"]
)
def test_another_url_is_refused(url: str) -> None:
    with pytest.raises(UnfitTargetError, match=r"name (one of those|another prefix)"):
        parse(url, {})


@pytest.mark.parametrize(
    "rest", ["", "/", "/a", "/a/b/", "/a b", "/a\tb", "/a\x01b", "/ä", "/.a", "/a.", "/a/..", "/a//b"]
)
@pytest.mark.parametrize(
    "start", ["s3://lake", "s3://l", "s3://La", "s3:/lake", "S3://lake", "s3a://lake", "gs://lake"]
)
def test_the_server_takes_what_the_export_takes(start: str, rest: str) -> None:
    url = start + rest
    try:
        expected: str | None = str(parse(url, {}))
    except UnfitTargetError:
        expected = None
    try:
        found: str | None = str(bucket.parse(url))
    except ValueError:
        found = None
    assert found == expected


def test_the_server_calls_things_as_the_export_does() -> None:
    assert values.ICEBERG == names.FORMAT
    assert job.COMPACTION == ledger.COMPACTION
