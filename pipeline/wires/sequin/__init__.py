"""What clients of Sequin's HTTP pull consumers speak: items of records consumers are received and acknowledged."""

from __future__ import annotations

from pipeline.api.wire import Place, Wire
from pipeline.wires.sequin import answers
from pipeline.wires.sequin.service import PATHS, Service

WIRE = Wire(
    name="sequin",
    places=tuple(Place(path, get_changes=path.endswith("/receive")) for path in PATHS),
    forms={404: answers.not_found, 409: answers.other_kind, 422: answers.bad_request},
    otherwise=answers.error,
    serve=Service,
    wants_bearer=True,
)
