"""What hostile clients send, as bytes. Nothing depends on an answer, so each text is made once for all of them."""

from __future__ import annotations

from dataclasses import dataclass

import h2.config
import h2.connection

from pipeline.rpc.protos import event_log_pb2 as pb

STARS = "public." + "*" * 25 + "!"
"""A pattern that a backtracking regular expression does not finish."""
DEEP = b'{"name": "deep", "tables": ' + b"[" * 20_000 + b"]" * 20_000 + b"}"
HALF_BODY = 450_000
_READ, _CHECK = "/pipeline.v1.EventLog/Read", "/grpc.health.v1.Health/Check"
_TLS_HELLO = bytes.fromhex("16030102000100")


@dataclass(frozen=True)
class HostileKind:
    """A kind of client at one port.

    It sends `first`, then each second one byte of `later`, until the server ends the connection. If it `repeats`, it
    sends all of `later` when the last answer has come. If it `leaves`, it ends the connection itself after a second.
    """

    name: str
    grpc: bool
    first: bytes = b""
    later: bytes = b""
    repeats: bool = False
    leaves: bool = False


def kinds(token: str) -> list[HostileKind]:
    """All kinds. Only those of stars and deep JSON have the token."""
    half_of_call, _ = _call(_CHECK, b"\0\0\0\0\x64half")
    bearer = f"authorization: Bearer {token}"
    post = (f"content-length: {len(DEEP)}", "content-type: application/json", bearer)
    return [
        HostileKind("silent", grpc=False),
        HostileKind("silent", grpc=True),
        HostileKind("trickling", grpc=False, later=_head("GET /v1/events", "a: " + "b" * 200)),
        HostileKind("trickling", grpc=True, later=half_of_call),
        HostileKind(
            "half a body", grpc=False, first=_head("POST /v1/init", "content-length: 900000") + b"x" * HALF_BODY
        ),
        HostileKind("half a body", grpc=True, first=half_of_call),
        HostileKind("half a handshake", grpc=False, first=_TLS_HELLO),
        HostileKind("half a handshake", grpc=True, first=b"PRI * HTTP/2.0\r\n"),
        HostileKind("wrong token", grpc=False, later=_head("GET /v1/events", bearer + "!"), repeats=True),
        HostileKind("wrong token", grpc=True, first=_read(token + "!"), leaves=True),
        HostileKind("stars", grpc=False, later=_head(f"GET /v1/events?limit=10&tables={STARS}", bearer), repeats=True),
        HostileKind("stars", grpc=True, first=_read(token), leaves=True),
        HostileKind("deep JSON", grpc=False, later=_head("POST /v1/consumers", *post) + DEEP, repeats=True),
        HostileKind("deep JSON", grpc=False, later=_head("POST /v1/backfills", *post) + DEEP, repeats=True),
    ]


def _head(target: str, *headers: str) -> bytes:
    return "".join(f"{line}\r\n" for line in (f"{target} HTTP/1.1", "host: 127.0.0.1", *headers, "")).encode()


def _read(token: str) -> bytes:
    message = pb.ReadRequest(tables=[STARS]).SerializeToString()
    head, body = _call(_READ, b"\0" + len(message).to_bytes(4) + message, ("authorization", f"Bearer {token}"))
    return head + body


def _call(path: str, message: bytes, *metadata: tuple[str, str]) -> tuple[bytes, bytes]:
    """What a client of HTTP/2 sends up to the message, and the end of the call."""
    line = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    line.initiate_connection()
    headers = [
        (":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost"),
        ("te", "trailers"), ("content-type", "application/grpc"), *metadata,
    ]  # fmt: skip
    line.send_headers(1, headers)
    line.send_data(1, message)
    head = line.data_to_send()
    line.end_stream(1)
    return head, line.data_to_send()
