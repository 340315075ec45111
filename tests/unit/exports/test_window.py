"""Whether anything is new, and when it is looked next."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pipeline.exports.window import ExportWindow, next_run

NOW = datetime(2026, 11, 21, 12, 3, tzinfo=UTC)


@pytest.mark.parametrize(
    ("window", "behind", "new"),
    [
        (ExportWindow(), 0, False),
        (ExportWindow(head=10, exported_upto=10, known=True), 0, False),
        (ExportWindow(head=10, exported_upto=4, known=True), 6, True),
        (ExportWindow(head=10), 10, True),
        (ExportWindow(head=10**15, exported_upto=4, jumped=10**15 - 10, known=True), 6, True),
        (ExportWindow(head=4, exported_upto=10, known=True), 0, False),
        (ExportWindow(head=10, exported_upto=10, known=True, states_behind=True), 0, True),
        (ExportWindow(head=10, exported_upto=10, known=True, iceberg_behind=True), 0, True),
    ],
)
def test_what_is_new(window: ExportWindow, behind: int, new: bool) -> None:
    assert (window.behind, window.anything_new) == (behind, new)


def test_the_next_run() -> None:
    assert next_run("*/5 * * * *", NOW) == datetime(2026, 11, 21, 12, 5, tzinfo=UTC)
    assert next_run("off", NOW) is None
