"""A bare grpcio server: it hands walstream's messages from memory, as fast as it can, and takes acknowledgements.

python -m tests.benchmarks.rpc_bare FILE PORT: says "listening".
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc

from pipeline.rpc.protos import plugin_pb2
from pipeline.wires.walstream.service import NAME


def read(file: Path) -> list[bytes]:
    """The messages in a file that `rpc_client` wrote."""
    data, at, found = file.read_bytes(), 0, []
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        found.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return found


async def serve(file: Path, port: str) -> None:
    messages = read(file)

    async def session(requests: AsyncIterator[plugin_pb2.ClientMessage], context: Any) -> None:
        await context.send_initial_metadata(())

        async def take() -> None:
            async for _ in requests:
                continue

        taking = asyncio.create_task(take())
        for message in messages:
            await context.write(message)
        await taking

    server = grpc.aio.server()
    handler = grpc.stream_stream_rpc_method_handler(session, plugin_pb2.ClientMessage.FromString, bytes)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(NAME, {"Session": handler}),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    print("listening", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), sys.argv[2]))
