"""Settings of catching up: defaults, the section of the file, amounts of bytes, and what is said of a wrong value."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.config import settings, sizes
from pipeline.errors import ConfigError


def test_defaults() -> None:
    given = settings.load()
    assert (given.catchup_bytes, given.catchup_interval, given.catchup_max_slots) == (10**9, 1.0, None)


@pytest.mark.parametrize(
    ("text", "size"),
    [("1GB", 10**9), ("64MB", 64_000_000), ("16 kb", 16_000), ("1.5GiB", 3 * 2**29), ("1000000000", 10**9), ("1", 1)],
)
def test_an_amount_is_a_number_with_a_unit_or_without(text: str, size: int) -> None:
    assert sizes.parse(text) == settings.load(catchup_threshold=text).catchup_bytes == size


@pytest.mark.parametrize("text", ["off", " OFF "])
def test_it_can_be_turned_off(text: str) -> None:
    assert settings.load(catchup_threshold=text).catchup_bytes is None


@pytest.mark.parametrize("text", ["", "0", "-1", "many", "1XB", "1e9", "nan", "99999999TB", "9" * 400])
def test_what_is_no_amount_is_refused_with_what_was_expected(text: str) -> None:
    with pytest.raises(
        ConfigError, match=r"^PIPELINE_CATCHUP_THRESHOLD: expected bytes, .* such as 64MB or 1GB, or off"
    ):
        settings.load(catchup_threshold=text)


def test_the_section_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text("[catchup]\nthreshold = 1000\ninterval = 0.2\nmax_slots = 3\n")
    given = settings.load(file)
    assert (given.catchup_bytes, given.catchup_interval, given.catchup_max_slots) == (1000, 0.2, 3)
    assert settings.from_json(given.to_json()) == given


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("catchup_interval", "0", "PIPELINE_CATCHUP_INTERVAL: input should be greater than or equal to 0.05"),
        ("catchup_interval", "61", "PIPELINE_CATCHUP_INTERVAL: input should be less than or equal to 60"),
        ("catchup_interval", "nan", "PIPELINE_CATCHUP_INTERVAL: input should be"),
        ("catchup_interval", "often", "PIPELINE_CATCHUP_INTERVAL: input should be a valid number"),
        ("catchup_max_slots", "0", "PIPELINE_CATCHUP_MAX_SLOTS: input should be greater than or equal to 1"),
        ("catchup_max_slots", "65", "PIPELINE_CATCHUP_MAX_SLOTS: input should be less than or equal to 64"),
        ("slot", "orders_part_2", "PIPELINE_SLOT: 'orders_part_2' is reserved for slots that read a part of a backlog"),
        ("catchup_max_slots", "two", "PIPELINE_CATCHUP_MAX_SLOTS: input should be a valid integer"),
    ],
)
def test_a_wrong_value_is_named(setting: str, value: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        settings.load(None, **{setting: value})


def test_a_threshold_that_is_no_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text("[catchup]\nthreshold = true\n")
    with pytest.raises(ConfigError, match="PIPELINE_CATCHUP_THRESHOLD: input should be a valid string"):
        settings.load(file)
