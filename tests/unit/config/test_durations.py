"""Lengths of time in settings, and what is no length."""

from __future__ import annotations

import pytest

from pipeline.config import durations, settings
from pipeline.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "seconds"), [("7d", 604_800), ("12h", 43_200), ("30m", 1_800), ("45s", 45), ("none", None)]
)
def test_a_length_is_a_number_with_a_unit(text: str, seconds: float | None) -> None:
    assert durations.parse(text) == seconds
    assert settings.load(retention=text).retention_seconds == seconds


@pytest.mark.parametrize("text", ["7", "7x", "-1d", "1.5h", "0s", "1d 2h", "forever", "9999999999d"])
def test_anything_else_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^PIPELINE_RETENTION: expected a number with d, h, m or s, such as 7d"):
        settings.load(retention=text)


def test_case_and_blanks_do_not_matter() -> None:
    assert settings.load(retention=" 7D ").retention == "7d"
    assert settings.load(retention="").retention_seconds is None


def test_it_survives_the_way_to_a_role() -> None:
    assert settings.from_json(settings.load(retention="12h").to_json()).retention_seconds == 43_200
