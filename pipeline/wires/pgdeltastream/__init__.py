"""What clients of PG Delta Stream speak: a session begins, its snapshot is read in pages, its slot is streamed."""

from __future__ import annotations

from pipeline.api.wire import Place, Wire
from pipeline.wires.pgdeltastream import answers
from pipeline.wires.pgdeltastream.service import INIT, SNAPSHOT, STREAM, Service

WIRE = Wire(
    name="pgdeltastream",
    places=(Place(INIT, get_changes=True), Place(SNAPSHOT), Place(STREAM)),
    forms={404: answers.no_page, 405: answers.no_page},
    otherwise=answers.error,
    serve=Service,
)
