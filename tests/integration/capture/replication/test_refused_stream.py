"""What refuses a replication connection for good is told from a source that is away."""

from __future__ import annotations

import socket
import threading
import uuid

import pytest

from pipeline.capture.replication.stream import ReplicationStream
from pipeline.capture.source.walsender import application_name
from pipeline.errors import SourceUnfitError

SAID = "unsupported startup parameter: replication"


def refuse(listener: socket.socket) -> None:
    """As PgBouncer does: an error instead of a greeting."""
    client, _ = listener.accept()
    with client:
        client.recv(1000)
        fields = b"".join(
            code + text.encode() + b"\0" for code, text in ((b"S", "FATAL"), (b"C", "08P01"), (b"M", SAID))
        )
        client.sendall(b"E" + (len(fields) + 5).to_bytes(4, "big") + fields + b"\0")


def test_a_pooler_that_knows_no_replication() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        answering = threading.Thread(target=refuse, args=[listener])
        answering.start()
        port = listener.getsockname()[1]
        dsn = f"host=127.0.0.1 port={port} user=postgres dbname=shop sslmode=disable gssencmode=disable"
        with pytest.raises(SourceUnfitError, match="takes no replication connections; connect to the source directly"):
            ReplicationStream(dsn, application_name(uuid.uuid4()))
        answering.join()
