"""What executors of a cluster that encrypts get of this process's keys of an object store."""

from __future__ import annotations

import re

import pytest

from lake.running import settings


def test_keys_go_to_executors_under_names_that_spark_hides(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    for name in names:
        monkeypatch.setenv(name, "key")
    found = settings.store_credentials()
    hidden = found.pop("spark.redaction.regex")
    assert found == {f"spark.executorEnv.{name}": "key" for name in names}
    assert [name for name in found if not re.search(hidden, name)] == []


def test_without_keys_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    assert settings.store_credentials() == {}
