"""Errors as Sequin's clients know them: each status and the one sentence."""

from __future__ import annotations

import json

import pytest

from pipeline.api.wire import ErrorAnswer
from pipeline.wires.sequin import endpoints as sequin
from pipeline.wires.sequin.endpoints import NOT_FOUND


@pytest.mark.parametrize(
    ("status", "answered", "summary"),
    [
        (401, 401, "said"),
        (403, 403, "said"),
        (404, 404, NOT_FOUND),
        (405, 405, "said"),
        (409, 404, f"{NOT_FOUND}: said"),
        (413, 413, "said"),
        (422, 400, "said"),
        (500, 500, "said"),
        (503, 503, "said"),
    ],
)
def test_each_error_has_its_status_and_sentence(status: int, answered: int, summary: str) -> None:
    answer = sequin.WIRE.answer(ErrorAnswer(status, "said", {"Retry-After": "5"} if status == 503 else {}))
    assert (answer.status_code, json.loads(bytes(answer.body))) == (answered, {"summary": summary})
    assert (answer.headers.get("retry-after") == "5") is (status == 503)
