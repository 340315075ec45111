"""A source that is too old is refused at boot with the remedy."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from pipeline.capture.replication import prepare
from pipeline.errors import SourceUnfitError


@pytest.mark.parametrize("version", [140018, 130021])
def test_a_postgres_out_of_support_is_refused(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "read_settings", lambda _: (version, "logical", True, "me", False))
    refused = rf"^the source runs Postgres {version // 10000}, and 15 or newer is needed; upgrade it$"
    with pytest.raises(SourceUnfitError, match=refused):
        prepare.require_fit(Mock())


def test_the_oldest_that_is_supported_is_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "read_settings", lambda _: (150000, "logical", True, "me", False))
    prepare.require_fit(Mock())
