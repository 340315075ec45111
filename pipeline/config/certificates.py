"""Loads the TLS certificate and key that the settings name, so that errors in the files are reported at the start."""

from __future__ import annotations

import ssl
from pathlib import Path

from pipeline.config.settings import Config
from pipeline.errors import ConfigError


def context(config: Config) -> ssl.SSLContext | None:
    """Return the server's TLS context; None if no certificate is set. Raises ConfigError, which names the setting."""
    if config.http_certificate is None or config.http_key is None:
        return None
    _require_readable("PIPELINE_HTTP_CERTIFICATE", config.http_certificate)
    _require_readable("PIPELINE_HTTP_KEY", config.http_key)
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        made.load_cert_chain(config.http_certificate, config.http_key, password=_no_passphrase)
    except (ssl.SSLError, _EncryptedKeyError) as error:
        raise ConfigError(_explained(config, error)) from None
    return made


class _EncryptedKeyError(Exception):
    """The key needs a passphrase, which the server has no way to ask for."""


def _no_passphrase() -> str:
    raise _EncryptedKeyError


def _require_readable(setting: str, file: Path) -> None:
    try:
        with file.open("rb") as stream:
            stream.read(1)
    except OSError as error:
        raise ConfigError(f"{setting}: {file} cannot be read: {error.strerror}; correct the path") from None


def _explained(config: Config, error: Exception) -> str:
    if isinstance(error, _EncryptedKeyError):
        return f"PIPELINE_HTTP_KEY: {config.http_key} has a passphrase; use a key without one"
    reason = getattr(error, "reason", "") or ""
    if reason == "KEY_VALUES_MISMATCH":
        return f"PIPELINE_HTTP_KEY: {config.http_key} is not the key of {config.http_certificate}; set the right one"
    assert config.http_certificate is not None  # noqa: S101  asked before
    if b"-----BEGIN CERTIFICATE-----" not in config.http_certificate.read_bytes():
        return (
            f"PIPELINE_HTTP_CERTIFICATE: {config.http_certificate} has no certificate in PEM format; name another file"
        )
    assert config.http_key is not None  # noqa: S101  asked before
    if b"PRIVATE KEY-----" not in config.http_key.read_bytes():
        return f"PIPELINE_HTTP_KEY: {config.http_key} has no private key in PEM format; name another file"
    return (
        f"PIPELINE_HTTP_CERTIFICATE and PIPELINE_HTTP_KEY cannot be used: {reason.lower().replace('_', ' ') or error}; "
        "set a certificate and its key in PEM format"
    )
