"""Warnings of `status` about roles at the source and at followers: too many rights, or too few to read a table."""

from __future__ import annotations

from pipeline.config.settings import Config
from pipeline.errors import PipelineError
from pipeline.operate import superusers
from pipeline.postgres import connections
from pipeline.snapshots import reading_rights

_PROGRAM = "pipeline roles"
_CHECK_SECONDS = 10.0
"""Seconds that the source has to answer."""


def read(config: Config) -> list[str]:
    """Read the warnings, each in one line with its remedy. If the reading role cannot log in, return the reason."""
    with (
        connections.answering(config.source, "source", _CHECK_SECONDS, name=_PROGRAM) as source,
        connections.connect(config.database, "pipeline database", name=_PROGRAM) as pipeline,
    ):
        try:
            risks = superusers.find(config, source, pipeline)
            lacking = reading_rights.warnings(config, source, pipeline)
        except PipelineError as error:
            return [str(error)]
    return [*(f"{risk.text}; {risk.remedy}" for risk in risks), *lacking]
