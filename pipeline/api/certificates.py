"""TLS by the certificate settings: what is wrong with the files is said before anything starts."""

from __future__ import annotations

import ssl
from pathlib import Path

from pipeline.config.settings import Config
from pipeline.errors import ConfigError


def context(config: Config) -> ssl.SSLContext | None:
    """For a server that listens; None when it speaks plain HTTP. Raises ConfigError that names the setting."""
    if config.http_certificate is None or config.http_key is None:
        return None
    _require_readable("PIPELINE_HTTP_CERTIFICATE", config.http_certificate)
    _require_readable("PIPELINE_HTTP_KEY", config.http_key)
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        made.load_cert_chain(config.http_certificate, config.http_key, password=_no_passphrase)
    except (ssl.SSLError, _Encrypted) as error:
        raise ConfigError(_explained(config, error)) from None
    return made


class _Encrypted(Exception):
    """The key wants a passphrase, which nobody is there to type."""


def _no_passphrase() -> str:
    raise _Encrypted


def _require_readable(setting: str, file: Path) -> None:
    try:
        with file.open("rb") as stream:
            stream.read(1)
    except OSError as error:
        raise ConfigError(f"{setting}: {file} cannot be read: {error.strerror}; correct the path") from None


def _explained(config: Config, error: Exception) -> str:
    if isinstance(error, _Encrypted):
        return f"PIPELINE_HTTP_KEY: {config.http_key} has a passphrase; use a key without one"
    reason = getattr(error, "reason", "") or ""
    if reason == "KEY_VALUES_MISMATCH":
        return f"PIPELINE_HTTP_KEY: {config.http_key} is not the key of {config.http_certificate}; name its own"
    assert config.http_certificate is not None  # noqa: S101  asked before
    if b"-----BEGIN CERTIFICATE-----" not in config.http_certificate.read_bytes():
        return (
            f"PIPELINE_HTTP_CERTIFICATE: {config.http_certificate} holds no certificate in PEM form; name one that does"
        )
    assert config.http_key is not None  # noqa: S101  asked before
    if b"PRIVATE KEY-----" not in config.http_key.read_bytes():
        return f"PIPELINE_HTTP_KEY: {config.http_key} holds no private key in PEM form; name one that does"
    return (
        f"PIPELINE_HTTP_CERTIFICATE and PIPELINE_HTTP_KEY cannot be used: {reason.lower().replace('_', ' ') or error}; "
        "name a certificate and its key in PEM form"
    )
