"""Settings of wires and their sessions: defaults, lists, the section of the file, and what is said of a wrong value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.config import settings
from pipeline.errors import ConfigError


def test_defaults() -> None:
    given = settings.load()
    assert (given.wires, given.open_wires) == ((), ())
    assert (given.sessions_max, given.sessions_idle_seconds, given.sessions_wal_bytes) == (4, 3600.0, 10**10)


@pytest.mark.parametrize("text", ["pgdeltastream", " pgdeltastream, ", "pgdeltastream,pgdeltastream"])
def test_wires_are_a_list_with_each_once(text: str) -> None:
    given = settings.load(wires=text, open_wires=text)
    assert (given.wires, given.open_wires) == (("pgdeltastream",), ("pgdeltastream",))
    assert settings.from_json(given.to_json()) == given


def test_the_environment_and_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text('wires = ["pgdeltastream"]\n[sessions]\nmax = 7\nidle = "5m"\nwal = 1000\n')
    given = settings.load(file)
    assert given.wires == ("pgdeltastream",)
    assert (given.sessions_max, given.sessions_idle_seconds, given.sessions_wal_bytes) == (7, 300.0, 1000)
    monkeypatch.setenv("PIPELINE_WIRES", "")
    assert settings.load(file).wires == ()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"wires": "pgdeltastrem"},
            "PIPELINE_WIRES: unknown wire 'pgdeltastrem'; did you mean pgdeltastream? there are",
        ),
        ({"wires": "PGDeltaStream"}, "PIPELINE_WIRES: unknown wire 'PGDeltaStream'; did you mean pgdeltastream?"),
        ({"wires": "kafka"}, "PIPELINE_WIRES: unknown wire 'kafka'; there are: pgdeltastream"),
        ({"wires": 5}, "PIPELINE_WIRES: expected a list of the names of wires"),
        ({"wires": [5]}, "PIPELINE_WIRES: input should be a valid string"),
        ({"open_wires": "x"}, "PIPELINE_OPEN_WIRES: unknown wire 'x'; there are: pgdeltastream"),
        (
            {"open_wires": "pgdeltastream"},
            "PIPELINE_OPEN_WIRES names pgdeltastream, which PIPELINE_WIRES does not serve: add it there, or leave",
        ),
        (
            {"wires": "pgdeltastream", "open_wires": "pgdeltastream", "http_host": "0.0.0.0"},  # noqa: S104
            "PIPELINE_HTTP_HOST 0.0.0.0 is reachable from outside this machine: set PIPELINE_API_TOKEN",
        ),
        ({"sessions_max": "0"}, "PIPELINE_SESSIONS_MAX: input should be greater than or equal to 1"),
        ({"sessions_max": "few"}, "PIPELINE_SESSIONS_MAX: input should be a valid integer"),
        (
            {"sessions_idle": "none"},
            "PIPELINE_SESSIONS_IDLE: expected a number with d, h, m or s, such as 7d, 12h, 30m",
        ),
        ({"sessions_idle": "0s"}, "PIPELINE_SESSIONS_IDLE: expected a number with d, h, m or s"),
        ({"sessions_wal": "off"}, "PIPELINE_SESSIONS_WAL: expected bytes, with or without a unit"),
        ({"sessions_wal": "0"}, "PIPELINE_SESSIONS_WAL: expected bytes"),
    ],
)
def test_a_wrong_value_is_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        settings.load(**given)
    assert str(raised.value).startswith(said)
    assert "or none" not in str(raised.value)
    assert "or off" not in str(raised.value)
