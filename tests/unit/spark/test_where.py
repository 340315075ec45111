"""Paths in folders and in buckets."""

from __future__ import annotations

from pathlib import Path

import pytest

from lake.errors import TargetUnfit
from lake.storage.where import ObjectPath, parse, relative


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
    with pytest.raises(TargetUnfit, match=r"name (one of those|another prefix)"):
        parse(url, {})
