"""Variables of the environment that look like settings and are none."""

from __future__ import annotations

import pytest

from pipeline.config.settings import unknown_variables


@pytest.mark.parametrize(
    ("variable", "similar"),
    [
        ("PIPELINE_SORCE_DSN", "PIPELINE_SOURCE_DSN"),
        ("PIPELINE_API_TOKEN_FIL", "PIPELINE_API_TOKEN_FILE"),
        ("PIPELINE_ZZZ", None),
    ],
)
def test_an_unknown_variable_has_the_most_similar_setting(
    variable: str, similar: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "x")
    assert unknown_variables() == {variable: similar}
