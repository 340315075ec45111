"""Which walsenders a value of synchronous_standby_names can choose."""

from __future__ import annotations

import pytest

from pipeline.capture.source import synchronous_standbys
from pipeline.capture.source.walsender import NAME_PREFIX


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("", False),
        ("*", True),
        ('FIRST 1 ("*")', True),
        ("any 2 (a, b, *)", True),
        ("a, b", False),
        ("first 1 (standby1)", False),
        ('"pipeline 6f9619ff-8b86-d011-b42d-00cf4fc964ff"', True),
        ('2 (x, "Pipeline 6F9619FF")', True),
        ('a, "pipeline session delta_pet7"', True),
        ('"x, pipeline y"', False),
        ('"say ""pipeline x"""', False),
        ("pipeline", False),
    ],
)
def test_whether_commits_would_wait_for_us(names: str, expected: bool) -> None:
    assert synchronous_standbys.can_choose(names, NAME_PREFIX) == expected
