"""The .proto files and what is made from them; and that walstream's are name by name those of its clients."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from google.protobuf.descriptor import FieldDescriptor
from grpc_health.v1 import health_pb2

from pipeline.rpc import health
from pipeline.rpc.event_log.service import EventLogService
from pipeline.rpc.protos import event_log_pb2, plugin_pb2
from pipeline.wires.walstream.service import PluginService

ROOT = Path(__file__).parents[3]
PROTOS = ROOT / "pipeline" / "rpc" / "protos"
U64, TEXT, MESSAGE = FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_MESSAGE
EVENT = {"pg_lsn": (1, U64), "schema": (2, TEXT), "table": (3, TEXT), "json_payload": (4, TEXT)}
WALSTREAM = {
    "ClientAck": {"pg_lsn": (1, U64)},
    "ClientMessage": {"ack": (1, MESSAGE)},
    "InsertEvent": EVENT,
    "UpdateEvent": EVENT,
    "DeleteEvent": EVENT,
    "TruncateEvent": {"pg_lsn": (1, U64), "schema": (2, TEXT), "table": (3, TEXT)},
    "ServerMessage": {name: (at, MESSAGE) for at, name in enumerate(("insert", "update", "delete", "truncate"), 1)},
}


def test_what_is_made_from_them_is_committed(tmp_path: Path) -> None:
    """After a change: `make proto`."""
    files = [path.relative_to(ROOT).as_posix() for path in sorted(PROTOS.glob("*.proto"))]
    command = [
        sys.executable,
        "-m",
        "grpc_tools.protoc",
        "-I",
        ".",
        f"--python_out={tmp_path}",
        f"--pyi_out={tmp_path}",
    ]
    subprocess.run([*command, *files], cwd=ROOT, check=True)
    made = {path.name: path.read_text() for path in tmp_path.glob("**/*_pb2.*")}
    assert made == {path.name: path.read_text() for path in PROTOS.glob("*_pb2.*")}


def test_walstreams_messages_are_name_by_name_and_number_by_number() -> None:
    file = plugin_pb2.DESCRIPTOR
    found = {
        name: {field.name: (field.number, field.type) for field in message.fields}
        for name, message in file.message_types_by_name.items()
    }
    assert (file.package, found) == ("plugin", WALSTREAM)
    call = file.services_by_name["PluginService"].methods_by_name["Session"]
    assert (call.input_type.name, call.output_type.name) == ("ClientMessage", "ServerMessage")
    assert (call.client_streaming, call.server_streaming) == (True, True)


def test_services_are_served_under_the_names_that_clients_call() -> None:
    served = {EventLogService.name: event_log_pb2, health.NAME: health_pb2, PluginService.name: plugin_pb2}
    assert sorted(served) == ["grpc.health.v1.Health", "pipeline.v1.EventLog", PluginService.name]
    for name, module in served.items():
        services = module.DESCRIPTOR.services_by_name.values()
        assert [service.full_name for service in services] == [name]
