"""Sessions of the console: a signed value that a browser gets for a token, and sends in its own header."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import SecretStr

from pipeline.api import access
from pipeline.config.settings import Config

if TYPE_CHECKING:
    from itsdangerous import TimestampSigner

Rights = Literal["all", "reads"]
"""The requests that a token allows: all, or only those that read."""
SESSION_SECONDS = 12 * 3600
"""Seconds after which a browser needs the token again."""
HEADER = "pipeline-session"
"""The header with the session. A cookie would reach every port of the host, and `Authorization` may be a proxy's."""
_PAYLOAD = b"1"


def rights_of(token: str | None, config: Config) -> Rights | None:
    """Return the rights of a token; None if the server does not know the token."""
    if access.is_token_valid(token, config):
        return "all"
    return "reads" if access.is_same_secret(token, config.read_token) else None


def create_session(token: str) -> str:
    """Return a session value. Its key is derived from this token, so the value is void when the token changes."""
    signed: bytes = _signer(token).sign(_PAYLOAD)
    return signed.decode()


def session_rights(headers: Mapping[str, str], config: Config) -> Rights | None:
    """Return the rights of the request's session; None if the request has none, or an old one."""
    given = headers.get(HEADER)
    if given is None:
        return None
    if _is_signed(given, config.api_token):
        return "all"
    return "reads" if _is_signed(given, config.read_token) else None


def _is_signed(value: str, token: SecretStr | None) -> bool:
    """True if this token signed the value, less than SESSION_SECONDS ago."""
    from itsdangerous import BadSignature

    if token is None:
        return False
    try:
        payload: bytes = _signer(token.get_secret_value()).unsign(value, max_age=SESSION_SECONDS)
    except BadSignature:
        return False
    return payload == _PAYLOAD


def _signer(token: str) -> TimestampSigner:
    from itsdangerous import TimestampSigner  # here, so that only servers with a login load it

    return TimestampSigner(token, salt="pipeline console session", key_derivation="hmac", digest_method=hashlib.sha256)
