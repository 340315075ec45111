"""Reads secrets from files, as Docker and Kubernetes mount them: `PIPELINE_SOURCE_DSN_FILE` names the DSN's file."""

from __future__ import annotations

import os
from collections.abc import Iterable

from pipeline.errors import ConfigError

_MOST = 65_536
"""The most characters of a secret. The limit ends the reading of a device or of a wrong, large file."""


def naming(variable: str) -> str:
    """Return the name of the environment variable that names the file with the secret of `variable`."""
    return f"{variable}_FILE"


def read(variables: Iterable[str]) -> dict[str, str]:
    """Read the files that the environment names for these variables; return each secret without newlines at its end.

    Raises ConfigError for a file without a secret, and if the variable itself is also set.
    """
    found = {}
    for variable in variables:
        if path := os.environ.get(naming(variable)):
            if os.environ.get(variable):
                raise ConfigError(f"{variable} and {naming(variable)} are both set; unset one of them")
            found[variable] = _content(naming(variable), path)
    return found


def _content(variable: str, path: str) -> str:
    file = path if _is_a_path(path) else "the file (its name is not shown, because it may be the secret itself)"
    try:
        with open(path, encoding="utf-8") as stream:
            text = stream.read(_MOST + 1)
    except OSError as error:
        raise ConfigError(
            f"{variable}: {file} cannot be read: {error.strerror}; name a file that this user may read, or unset it"
        ) from None
    except ValueError:  # its text would quote the content
        raise ConfigError(f"{variable}: {file} is not text in UTF-8; write only the secret into it") from None
    if len(text) > _MOST:
        raise ConfigError(f"{variable}: {file} is too long for a secret; name the file that contains only the secret")
    if not text.strip():
        raise ConfigError(f"{variable}: {file} is empty; write the secret into it, or unset the variable")
    return text.rstrip("\r\n")


def _is_a_path(value: str) -> bool:
    """True if the value is a path, and may be printed: a user may have set the variable to the secret by mistake."""
    return value.startswith(("/", "./", "../")) or os.path.exists(value)
