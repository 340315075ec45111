"""Decides who may use the API, by the token, the origin of the web page, and the host name of the request.

`pipeline.api.access_guard` checks each request over HTTP; `pipeline.rpc.server` checks the token of each call.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import secrets
import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

from pydantic import SecretStr

from pipeline.config.settings import Config

SUBPROTOCOL = "pipeline.v1"
"""The WebSocket subprotocol of the stream. A browser also offers `bearer.` and the token in unpadded base64url."""
_SUBPROTOCOL_TOKEN = "bearer."  # noqa: S105  a prefix
_PORTS = {"http": 80, "https": 443}
_OWN_FETCHES = ("same-origin", "none")
"""Values of Sec-Fetch-Site if our own page sends the request, or a person who types into the address bar."""


def has_bearer(headers: Mapping[str, str]) -> bool:
    """True if a request has `Authorization: Bearer` with any value. No page of another origin can send this header."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    return scheme.lower() == "bearer" and value.strip() != ""


def given_token(headers: Mapping[str, str], *, basic: bool = False) -> str | None:
    """Return the token of a request or of a WebSocket's handshake; None if the request has none.

    `basic`: also accept the token as the password of HTTP Basic, which a browser's dialog sends.
    """
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if basic and scheme.lower() == "basic":
        return (_decoded(value.strip()) or "").partition(":")[2]
    offered = (part.strip() for part in headers.get("sec-websocket-protocol", "").split(","))
    given = next((part for part in offered if part.startswith(_SUBPROTOCOL_TOKEN)), None)
    return None if given is None else _decoded(given.removeprefix(_SUBPROTOCOL_TOKEN))


def is_token_valid(given: str | None, config: Config) -> bool:
    """True if this is the server's token, or the server needs none. The comparison takes constant time."""
    if config.api_token is None:
        return True
    return is_same_secret(given, config.api_token)


def is_same_secret(given: str | None, secret: SecretStr | None) -> bool:
    """True if the given text is this secret, which is set. The comparison takes constant time."""
    return secret is not None and secrets.compare_digest((given or "").encode(), secret.get_secret_value().encode())


def origin_allowed(headers: Mapping[str, str], config: Config) -> bool:
    """True if the request has no Origin, or its Origin is ours or one of PIPELINE_HTTP_ORIGINS."""
    origin = headers.get("origin")
    if origin is None:
        return True
    if origin.lower() in config.http_origins:
        return True
    scheme, _, host = origin.lower().partition("://")
    if scheme not in _PORTS or not host:
        return False
    default = f":{_PORTS[scheme]}"
    return host.removesuffix(default) == headers.get("host", "").lower().removesuffix(default)


def fetch_allowed(headers: Mapping[str, str], config: Config) -> bool:
    """True if a GET that changes something may come from this origin.

    Pages can send a GET without an Origin, for instance as an image; then Sec-Fetch-Site decides.
    """
    if headers.get("origin", "").lower() in config.http_origins:
        return True
    return origin_allowed(headers, config) and headers.get("sec-fetch-site", "none").lower() in _OWN_FETCHES


def host_allowed(headers: Mapping[str, str], config: Config, *, is_open: bool = False) -> bool:
    """True if the request may name the server by this host.

    A request without a token must name this machine, because a page can make its own host name resolve to this server.
    `is_open`: the path needs no token, although the server has one. Then other machines may also call this path, if
    they use an IP address or the server's host name.
    """
    if config.api_token is not None and not is_open:
        return True
    host = headers.get("host", "").lower()
    if any(urlsplit(origin).netloc == host for origin in config.http_origins):
        return True
    name = _name(host)
    return _is_loopback(name) or (config.api_token is not None and _is_own(name))


def _name(host: str) -> str:
    """Return the host of a header `Host`, without its port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_loopback(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    address = _address(name)
    return address is not None and address.is_loopback


def _is_own(name: str) -> bool:
    return _address(name) is not None or name == socket.gethostname().lower()


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def _decoded(text: str) -> str | None:
    """Decode base64 or base64url, with or without padding; None if the text is neither."""
    try:
        plain = text.replace("+", "-").replace("/", "_").rstrip("=")
        return base64.b64decode(plain + "=" * (-len(plain) % 4), b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        return None
