"""Reads pipeline.toml, which has settings by their names in lower case, some in sections."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.errors import ConfigError

CONFIG_FILE = Path("pipeline.toml")
_SECTIONS = {"log": "log_", "exports": "export_", "catchup": "catchup_", "sessions": "sessions_"}
"""The sections of the file: `level` in `[log]` is the setting `log_level`."""


def read(file: Path | None, names: Sequence[str]) -> dict[str, Any]:
    """Return the settings in the file; `file` None: pipeline.toml, if it exists.

    `names`: the names of all settings, which messages list. Raises ConfigError for a file that cannot be read or is
    not TOML.
    """
    path = file or CONFIG_FILE
    try:
        with path.open("rb") as stream:
            return _flat(tomllib.load(stream), names)
    except FileNotFoundError:
        if file is None:
            return {}
        raise ConfigError(f"configuration file {path} does not exist") from None
    except OSError as error:
        remedy = "name a file of TOML"
        if isinstance(error, PermissionError):
            remedy = f"let user {os.geteuid()} enter the folder {path.absolute().parent} and read the file"
        raise ConfigError(f"configuration file {path} cannot be read: {error.strerror}; {remedy}") from None
    except ValueError as error:  # not TOML, or not UTF-8
        raise ConfigError(f"configuration file {path} is not TOML: {error}; correct it, or name another file") from None


def _flat(values: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the settings under their full names: `level` in `[log]` is `log_level`."""
    for name, prefix in _SECTIONS.items():
        section = values.pop(name, {})
        if not isinstance(section, dict):
            keys = ", ".join(field.removeprefix(prefix) for field in names if field.startswith(prefix))
            raise ConfigError(
                f"{name} in the configuration file must be a section: write [{name}], with keys such as {keys}"
            )
        values |= {f"{prefix}{key}": value for key, value in section.items()}
    for name, section in values.items():
        known = [f"{name}_{key}" for key in section if f"{name}_{key}" in names] if isinstance(section, dict) else []
        if known and name not in names:
            raise ConfigError(
                f"the configuration file can have no section [{name}]: write {', '.join(known)} above its sections"
            )
    return values
