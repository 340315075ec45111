"""What every command does: load its settings, print its result."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipeline import logs

if TYPE_CHECKING:
    from pipeline.config import Config

logger = logging.getLogger(__name__)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def load(context: typer.Context, role: str) -> Config:
    """The settings of this call; log lines name `role`. Raises ConfigError."""
    config: Config = context.obj()
    logs.setup(config.log_level, config.log_format, role)
    from pipeline import config as settings

    for name in settings.unknown_variables():
        logger.warning("%s is no setting; docs/operations.md lists them", name, extra={"action": "config.unknown"})
    return config


def output(value: Any, as_json: bool, show: Callable[[], None]) -> None:
    """The value as JSON, or what `show` prints for people."""
    if as_json:
        print(json.dumps(value, default=lambda it: it.isoformat() if isinstance(it, datetime) else str(it), indent=2))
    else:
        show()
